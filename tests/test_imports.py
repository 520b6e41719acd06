"""The import graph, computed from the source: which package may import which, and what stays free of JAX."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import fedlatest

ROOT = Path(fedlatest.__file__).parent
COPIED = "template"  # an app that is copied, not imported
ALLOWED = {  # package or top-level module: what it may import, besides errors and version
    "algorithms": {"identity", "streams"},
    "authoring": {"algorithms"},
    "availability": {"bounded_reading", "data", "digest", "files", "paths", "streams"},
    "bounded_reading": set(),
    "cli": {
        "availability", "bounded_reading", "delays", "deployment", "diagnosis", "experiments", "flower", "ledger",
        "machine", "privacy", "replay", "report", "reproduction", "runs", "simulation", "suggestions", "theory",
    },
    "data": {"bounded_reading", "digest", "files", "paths"},
    "delays": {"bounded_reading", "digest", "streams"},
    "deployment": {"availability", "files", "ledger"},
    "diagnosis": {"files", "runs", "theory"},
    "digest": set(),
    "experiments": {
        "algorithms", "availability", "data", "delays", "machine", "models", "paths", "privacy", "runs", "simulation",
        "streams", "suggestions", "theory",
    },
    "files": set(),
    "flower": {"algorithms", "availability", "ledger", "privacy", "runs", "trees"},
    "identity": set(),
    "kernels": {"data", "paths"},
    "ledger": {"files", "secure"},
    "machine": set(),
    "models": {"data", "kernels"},
    "paths": set(),
    "privacy": set(),
    "replay": {
        "algorithms", "availability", "data", "delays", "experiments", "ledger", "models", "runs", "simulation",
        "streams",
    },
    "report": {"bounded_reading", "diagnosis", "files", "runs"},
    "reproduction": {"experiments", "report", "suggestions"},
    "runs": {"bounded_reading", "files"},
    "secure": set(),
    "simulation": {
        "algorithms", "availability", "data", "delays", "identity", "kernels", "machine", "models", "paths", "privacy",
        "runs", "streams", "theory", "trees",
    },
    "streams": set(),
    "suggestions": set(),
    "theory": set(),
    "trees": set(),
}  # fmt: skip
EVERYWHERE = {"errors", "version"}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield every module of the package by its dotted name within it."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if COPIED not in parts and parts[0] not in ("__init__", "__main__"):
            yield ".".join(parts), ast.parse(path.read_text())


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names of all imports in a module, those inside functions included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            if node.module == "fedlatest":
                yield from (f"fedlatest.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def edges() -> dict[str, set[str]]:
    """Return which package or top-level module imports which, from all imports in the source."""
    found: dict[str, set[str]] = {}
    for name, tree in modules():
        package = name.split(".")[0]
        targets = {target.split(".")[1] for target in imported(tree) if target.startswith("fedlatest.")}
        found.setdefault(package, set()).update(targets - {package, "__version__"} - EVERYWHERE)
    return found


def test_no_new_edge_between_packages() -> None:
    found = edges()
    assert {name: targets - ALLOWED[name] for name, targets in found.items() if name not in EVERYWHERE} == {
        name: set() for name in found if name not in EVERYWHERE
    }


def test_no_allowed_edge_is_unused() -> None:
    """An edge that is gone leaves the list, so that it does not come back unnoticed."""
    found = edges()
    assert {name: targets - found.get(name, set()) for name, targets in ALLOWED.items()} == {
        name: set() for name in ALLOWED
    }


def test_packages_do_not_import_each_other_in_cycles() -> None:
    tuple(TopologicalSorter(edges()).static_order())  # raises CycleError


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("ledger", {"jax", "flwr", "optax"}),
        ("runs", {"jax", "optax"}),
        ("report", {"jax", "optax"}),
        ("diagnosis", {"jax", "optax", "matplotlib"}),
        ("privacy", {"jax", "optax"}),
        ("theory", {"jax", "optax"}),
        ("algorithms", {"flwr"}),
        ("simulation", {"flwr"}),
    ],
)
def test_packages_without_heavy_dependencies(package: str, forbidden: set[str]) -> None:
    """Neither the package nor anything that it imports names the dependency."""
    graph, reached, waiting = edges(), set[str](), [package]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting += graph.get(name, set()) - reached
    named = {
        (name, target.split(".")[0])
        for name, tree in modules()
        if name.split(".")[0] in reached
        for target in imported(tree)
    }
    assert {pair for pair in named if pair[1] in forbidden} == set()


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["report", "--help"],
        ["watch", "--help"],
        ["reproduce", "--help"],
        ["deploy", "--help"],
        ["advise", "--help"],
        ["diagnose", "--help"],
        ["explain", "--help"],
    ],
)
def test_help_starts_without_heavy_imports(command: list[str]) -> None:
    script = (
        "import sys\n"
        "from fedlatest.cli import main\n"
        f"sys.argv = ['fedlatest', *{command!r}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    pass\n"
        "print('heavy:', sorted({'jax', 'flwr', 'matplotlib', 'sklearn'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"
