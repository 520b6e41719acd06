"""What all tests share: no deadlines (the first call of a function compiles), and where the full data is."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fedlatest", deadline=None, max_examples=50)
settings.load_profile("fedlatest")


@pytest.fixture
def mnist_folder() -> Path:
    """The folder that holds MNIST, or a skip that says what is missing."""
    named = os.environ.get("FEDLATEST_DATA")
    if not named or not (Path(named) / "mnist").is_dir():
        pytest.skip("FEDLATEST_DATA does not name a folder with mnist/ in it")
    return Path(named) / "mnist"
