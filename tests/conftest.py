"""Configuration and fixtures of all tests: hypothesis without deadlines, a compilation cache, and the data folders."""

import atexit
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from hypothesis import settings

from tests.after_test import after_test
from tests.data.idx_files import write_small_mnist

# A script that starts the tests in the background ignores SIGINT; the processes that tests start must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("NPROC", "1")  # one thread; pytest itself uses a process per core

# Many tests compile the same small programs. A cache that lasts for the test session shares them between the pytest
# workers and the processes that tests start. Set JAX_COMPILATION_CACHE_DIR to keep the programs for the next session.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="fedlatest-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_configure(config: pytest.Config) -> None:
    """Accept JAX's warning about a cache entry that another process is still writing; JAX then compiles."""
    config.addinivalue_line("filterwarnings", "default:Error reading persistent compilation cache entry")


settings.register_profile("fedlatest", deadline=None, max_examples=50)
settings.load_profile("fedlatest")


@pytest.fixture(scope="session", autouse=True)
def separate_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the tests out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLATEST_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _close_after_test() -> Iterator[None]:
    with after_test:
        yield


@pytest.fixture(scope="session")
def small_mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a few small images in the file format of MNIST."""
    folder = tmp_path_factory.mktemp("images")
    write_small_mnist(folder)
    return folder


@pytest.fixture
def mnist_folder() -> Path:
    """The folder that holds MNIST; skips the test if there is none."""
    named = os.environ.get("FEDLATEST_DATA")
    if not named or not (Path(named) / "mnist").is_dir():
        pytest.skip("FEDLATEST_DATA does not name a folder with mnist/ in it")
    return Path(named) / "mnist"


@pytest.fixture
def tweets_folder() -> Path:
    """The folder that holds Sentiment140 and GloVe; skips the test if there is none."""
    named = os.environ.get("FEDLATEST_DATA")
    if not named or not all((Path(named) / part).is_dir() for part in ("sentiment140", "glove")):
        pytest.skip("FEDLATEST_DATA does not name a folder with sentiment140/ and glove/ in it")
    return Path(named)
