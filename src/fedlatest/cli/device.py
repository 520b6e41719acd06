"""Which device JAX is to use, said before it first starts."""

import os
from importlib.metadata import entry_points

import jax

from fedlatest.errors import ConfigError


def use_device(device: str | None) -> None:
    """Take `cpu`, `gpu` or, if None, JAX's choice."""
    if device not in (None, "cpu", "gpu"):
        raise ConfigError(f"--device {device}: choose cpu or gpu")
    if device == "cpu" or not entry_points(group="jax_plugins"):  # where accelerators plug in
        # One thread trains the small models of a cohort faster than several: XLA would split every little product, and
        # the threads would wait for each other. Read when JAX first starts; a user's own value stands.
        os.environ.setdefault("NPROC", "1")
    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    if device == "gpu" and jax.default_backend() != "gpu":
        raise ConfigError("--device gpu: JAX finds no GPU here; pip install 'fedlatest[gpu]' on a machine with one")
