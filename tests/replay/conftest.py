"""Fixtures of the tests of replays."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _quiet() -> Iterator[None]:
    """Do not log the many faults of the recorded jobs."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.ERROR)
    yield
    logger.setLevel(level)
