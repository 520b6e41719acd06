"""Compiled programs are kept on disk, so that a second process does not compile them again."""

import os

import jax

from fedlatest.paths import cache_folder, is_private

SWITCH = "FEDLATEST_COMPILATION_CACHE"  # 0: keep nothing
MIN_COMPILE_SECONDS = 0.2  # programs that compile faster are not kept


def enable_compilation_cache() -> None:
    """Let JAX keep compiled programs in the folder `programs` of the cache folder.

    A cache that the user has configured (`JAX_COMPILATION_CACHE_DIR`) is left alone; the environment variable
    FEDLATEST_COMPILATION_CACHE=0 switches this one off. A folder that cannot be written, or that others may write to,
    is not used: a compiled program is code.
    """
    if jax.config.values["jax_compilation_cache_dir"] or os.environ.get(SWITCH) == "0":
        return
    folder = cache_folder() / "programs"
    if is_private(folder):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_COMPILE_SECONDS)
