"""The page of guarantees names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guarantees.md"
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE.read_text())))


def _functions(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_named_test_exists(file: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in _functions(ROOT / "tests" / file)


def test_every_guarantee_names_a_test() -> None:
    """Each row of the tables with the column `test` has a test in its last column."""
    section = PAGE.read_text().partition("## Which faults are covered?")[2].partition("## How is it tested?")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| guarantee |")]
    assert len(rows) > 30
    for row in rows:
        assert re.fullmatch(r"(`[\w/]+\.py::test_\w+`(, )?)+", row.split(" | ")[-1].removesuffix(" |")), row
