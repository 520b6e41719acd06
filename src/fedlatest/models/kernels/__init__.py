"""Kernels for what a compiler of arrays does badly: many small recurrent models, each over texts of its own lengths."""
