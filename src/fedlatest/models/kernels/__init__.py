"""Kernels of the LSTM recurrence for many small models at once, over texts of different lengths.

Array compilers are slow at this task. `native` runs on CPUs, `pallas` on NVIDIA GPUs.
"""
