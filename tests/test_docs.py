"""The documentation: every public name is in the reference, every page is in the navigation, links have targets."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fedlatest
from fedlatest.algorithms import ALGORITHMS, ASYNCHRONOUS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(ROOT).as_posix() for page in DOCS.rglob("*.md"))
PACKAGES = (
    "availability", "data", "delays", "diagnosis", "errors", "flower", "models", "privacy", "replay", "runs", "theory",
)  # fmt: skip
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s#]+)")


def find(path: str) -> Any:
    """Return the object that a line `::: path` of the reference names."""
    module, name = path.rsplit(".", 1)
    return getattr(import_module(module), name)


@pytest.fixture(scope="module")
def documented() -> dict[str, Any]:
    """The objects of the reference, by name."""
    lines = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    return {path.rsplit(".", 1)[-1]: find(path) for path in re.findall(r"^::: (\S+)$", lines, re.MULTILINE)}


def public_names(package: Any) -> list[str]:
    """Return the names of `__all__`; for a module without it, the classes that it defines."""
    defined = [name for name, value in vars(package).items() if getattr(value, "__module__", "") == package.__name__]
    return [name for name in getattr(package, "__all__", defined) if name != "__version__"]


@pytest.mark.parametrize("package", ["fedlatest", *(f"fedlatest.{name}" for name in PACKAGES)])
def test_every_public_name_is_in_the_reference(package: str, documented: dict[str, Any]) -> None:
    module = import_module(package)
    assert [name for name in public_names(module) if documented.get(name) is not getattr(module, name)] == []


def test_every_algorithm_is_in_the_reference(documented: dict[str, Any]) -> None:
    factories = {**ALGORITHMS, **ASYNCHRONOUS}
    assert [name for name, factory in factories.items() if documented.get(name) is not factory] == []


def test_the_version_is_in_the_reference() -> None:
    assert "fedlatest.__version__" in (DOCS / "reference/index.md").read_text(encoding="utf-8")
    assert fedlatest.__version__


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("nav:")[2]))
    assert {page.removeprefix("docs/") for page in PAGES} - listed == set()


def test_the_program_of_the_home_page_prints_the_accuracy() -> None:
    [program] = re.findall(r"^```python\n(.*?)^```", (DOCS / "index.md").read_text(encoding="utf-8"), re.M | re.S)
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert float(printed) == pytest.approx(0.96, abs=0.005)


def test_the_table_of_algorithms_links_each_name_to_its_reference_and_paper() -> None:
    """A row names the authors and the year as `Algorithm.paper` does; the site build checks the links' targets."""
    text = (DOCS / "algorithms.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[`(\w+)\(\)`\]\(reference/algorithms\.md#([\w.]+)\) \| ([^|]*) \|", text, re.MULTILINE)
    assert {name for name, _, _ in rows} == set(ALGORITHMS)
    for name, anchor, paper in rows:
        factory = ALGORITHMS[name]
        assert anchor == f"{factory.__module__}.{name}"
        authors = re.sub(r"\[(.*)\]\(https://.*\)", r"\1", paper)
        assert authors == factory().paper.partition(",")[0].removeprefix("the baseline of ")


@pytest.mark.parametrize(
    "page",
    ["README.md", "CONTRIBUTING.md", "benchmarks/README.md", *PAGES],
)
def test_links_have_targets_in_the_repository(page: str) -> None:
    """`make docs` checks the links of the site; these are the same links for a reader of the files."""
    path = ROOT / page
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [target for target in LINK.findall(text) if not (path.parent / target).exists()] == []


COMPARISON = (DOCS / "explanation/comparison.md").read_text(encoding="utf-8")


def rows_below(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading of the comparison, without its first two lines."""
    table = re.findall(r"^\|(.*)\|$", COMPARISON.partition(f"## {heading}\n")[2].partition("\n## ")[0], re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")] for line in table[2:]]


def test_the_comparison_names_only_what_exists() -> None:
    """`a.b(c=...)` is the parameter c of a.b, where a is in the package `fedlatest`."""
    rows = rows_below("What does fedlatest have, and where?")
    names = [name for _, where in rows for name in re.findall(r"`([^`]+)`", where)]
    assert len(names) > len(rows) > 5
    for name in names:
        path, _, parameter = name.partition("(")
        target: Any = fedlatest
        for part in path.split("."):
            target = getattr(target, part, None) or import_module(f"{target.__name__}.{part}")
        if parameter:
            assert parameter.removesuffix("=...)") in inspect.signature(target).parameters


def test_the_comparison_denies_only_what_is_missing() -> None:
    """If a feature is added, this fails until its row and its line here are removed."""

    def is_deployable(factory: Any) -> bool:
        weighted = "weighting" in inspect.signature(factory).parameters
        return not factory(**({"weighting": "none"} if weighted else {})).obstacles_to_deployment()

    is_missing = {
        "simulate models written in PyTorch or TensorFlow": not hasattr(fedlatest, "from_torch"),
        "simulate models with state outside of the parameters, such as batch normalization": (
            "state" not in inspect.signature(fedlatest.Model).parameters
        ),
        "deploy asynchronous algorithms: rounds are synchronous, with a deadline": (
            not any(is_deployable(factory) for factory in ASYNCHRONOUS.values())
        ),
        "deploy every algorithm": not all(is_deployable(factory) for factory in ALGORITHMS.values()),
    }
    denied = [row[0] for row in rows_below("What does fedlatest not do?")]
    assert {row for row, missing in is_missing.items() if missing} == set(is_missing) & set(denied) == set(is_missing)
