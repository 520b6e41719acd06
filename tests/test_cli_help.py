"""`fedlatest --help`: the commands in groups, each with a description on one line; and commands that do not exist."""

import re
from pathlib import Path

import pytest
import typer.core
from typer.main import get_command

from fedlatest.cli.app import app
from fedlatest.cli.command_groups import GROUPS
from tests.command_line import fedlatest_here


def root() -> typer.core.TyperGroup:
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return group


def test_every_command_is_in_one_group() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(root().commands)


@pytest.mark.parametrize("columns", [80, 60])
def test_commands_are_shown_in_groups(columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns each command has one line; in a narrower terminal descriptions are wrapped and not cut."""
    monkeypatch.setenv("COLUMNS", str(columns))
    text = fedlatest_here("--help", cwd=tmp_path).stdout
    assert re.findall(r"^(\w+):$", text, re.MULTILINE) == ["Options", "Start", "Compare", "Understand", "Deploy"]
    assert re.findall(r"^  ([a-z][a-z-]*) +\S", text, re.MULTILINE) == [
        name for names in GROUPS.values() for name in names
    ]
    assert "..." not in text.partition("Start:")[2]
    for name, command in root().commands.items():
        first = (command.help or "").split("\n")[0]
        shown = f"  {name:<13}  {first}"
        assert (shown in text) if columns == 80 else (" ".join(shown.split()) in " ".join(text.split()))


@pytest.mark.parametrize("name", ["deploy", "explain"])
def test_descriptions_of_subcommands_are_not_cut(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "..." not in fedlatest_here(name, "--help", cwd=tmp_path).stdout.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reprot",), "Error: reprot: no such command; did you mean report?\n"),
        (("simulate",), "Error: simulate: no such command; `fedlatest --help` lists the names\n"),
        (("deploy", "locl"), "Error: locl: no such command; did you mean local?\n"),
        (("explain", "x"), "Error: x: no such command; choose one of example1, rate, stability\n"),
    ],
)
def test_a_misspelt_command_is_corrected(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = fedlatest_here(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.endswith(message)
