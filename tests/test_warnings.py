"""The filters of warnings in pyproject.toml: faults of ours are errors, deprecated calls in other packages are not."""

import warnings

import pytest


@pytest.mark.parametrize("module", ["fedlatest.runs.metrics", "tests.problems", "benchmarks.rounds", "__main__"])
def test_our_deprecated_calls_are_errors(module: str) -> None:
    with pytest.raises(DeprecationWarning):
        warnings.warn_explicit("is deprecated", DeprecationWarning, "file.py", 1, module)


def test_deprecated_calls_in_other_packages_are_shown() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.warn_explicit("is deprecated", DeprecationWarning, "file.py", 1, "typer")
    assert len(shown) == 1


@pytest.mark.parametrize("category", [ResourceWarning, RuntimeWarning, FutureWarning, UserWarning])
def test_other_warnings_are_errors_in_all_modules(category: type[Warning]) -> None:
    """An unclosed file is reported by the code that runs when it is collected, such as matplotlib's."""
    with pytest.raises(category):
        warnings.warn_explicit("never closed", category, "file.py", 1, "matplotlib.cbook")
