"""The supported versions of Flower: the list in the Makefile, the range in pyproject.toml, and what is installed."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def listed() -> list[Version]:
    """Return FLOWER_VERSIONS of the Makefile."""
    [line] = re.findall(r"^FLOWER_VERSIONS := ([0-9. ]+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return sorted(Version(text) for text in line.split())


def test_the_accepted_range_is_that_of_the_tested_versions() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [accepted] = [found.specifier for text in extras["flower"] if (found := Requirement(text)).name == "flwr"]
    oldest, newest = listed()[0], listed()[-1]
    assert all(accepted.contains(version) for version in listed())
    assert not accepted.contains(f"{oldest.major}.{oldest.minor - 1}.99")
    assert not accepted.contains(f"{newest.major}.{newest.minor + 1}.0")


def test_the_installed_version_is_one_of_them() -> None:
    assert Version(version("flwr")) in listed()
