"""Kernels for what array compilers are slow at: many small models that train at the same time.

`native_library` compiles C sources for the CPU of this machine; `training_native`, `lstm_native` and `rows_native` call
them. `dense_pallas`, `lstm_pallas` and `lstm_training_pallas` run on NVIDIA GPUs. Every kernel has an equivalent in
plain JAX, which is used where the kernel is not usable. May import `fedlatest.data` and `fedlatest.paths`.
"""
