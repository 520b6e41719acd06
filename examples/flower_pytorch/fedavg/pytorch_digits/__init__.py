"""Handwritten digits with PyTorch on Flower."""
