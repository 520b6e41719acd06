"""What all tests share: no deadlines (the first call of a function compiles), and where the full data is."""

import os
import tempfile
from pathlib import Path

import jax
import pytest
from hypothesis import settings

# Many tests compile the same small programs: one compilation serves them all.
_cache = tempfile.TemporaryDirectory()
jax.config.update("jax_compilation_cache_dir", _cache.name)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

settings.register_profile("fedlatest", deadline=None, max_examples=50)
settings.load_profile("fedlatest")


@pytest.fixture
def mnist_folder() -> Path:
    """The folder that holds MNIST, or a skip that says what is missing."""
    named = os.environ.get("FEDLATEST_DATA")
    if not named or not (Path(named) / "mnist").is_dir():
        pytest.skip("FEDLATEST_DATA does not name a folder with mnist/ in it")
    return Path(named) / "mnist"
