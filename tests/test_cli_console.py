"""Text from users, clients and files is printed as it is: no markup, no emoji codes, no control characters."""

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

import fedlatest.cli.deployment_table
from fedlatest.cli.console import PlainConsole
from fedlatest.cli.deployment_table import ProgressTable
from fedlatest.cli.progress import ExperimentBars, LoadingBars
from fedlatest.deployment.local_federation import LocalFederation
from fedlatest.deployment.supervise import JobStatus
from fedlatest.ledger.database import Database
from fedlatest.ledger.event_log import append_event
from tests.command_line import fedlatest_here
from tests.ledger.job import Job

HOSTILE = "no samples in [/data/part0.npz] :smile: \x1b]0;title\x07\x1b[2J\x9b31m"


def console(**options: Any) -> tuple[PlainConsole, io.StringIO]:
    file = io.StringIO()
    return PlainConsole(file=file, width=200, **options), file


def test_strings_texts_and_tables_are_printed_literally() -> None:
    shown, file = console()
    shown.print("[/data] :smile: \x1b[2J\x9b31m", style="red")
    shown.print(Text("[/data] :smile: \x1b[2J\x9b31m", style="red"))
    assert file.getvalue().splitlines() == [r"[/data] :smile: \x1b[2J\x9b31m"] * 2


def test_cells_and_headers_of_tables_are_printed_literally() -> None:
    shown, file = console()
    table = Table("[/header]", box=None, pad_edge=False)
    table.add_row("[/cell] \x1b[2J and a long text")
    shown.print(table)
    header, cell = file.getvalue().splitlines()
    assert header.startswith("[/header]")
    assert cell.startswith(r"[/cell] \x1b[2J and")


@given(st.text())
def test_no_text_raises_or_reaches_the_terminal_as_a_control_character(text: str) -> None:
    shown, file = console()
    shown.print(text, Text(text), soft_wrap=True)
    assert not any((char < " " and char not in "\t\n") or "\x7f" <= char < "\xa0" for char in file.getvalue())


def test_styles_and_live_displays_still_work() -> None:
    shown, file = console(force_terminal=True, color_system="standard", legacy_windows=False)
    shown.print("error", style="red")
    assert file.getvalue() == "\x1b[31merror\x1b[0m\n"
    with Progress(console=shown) as progress:
        progress.add_task("bar")
    assert "\x1b[?25l" in file.getvalue()  # the cursor is hidden


@pytest.mark.parametrize("bars", [ExperimentBars, LoadingBars])
def test_progress_bars_show_names_literally(bars: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    shown, file = console(force_terminal=True, color_system=None)
    monkeypatch.setattr("fedlatest.cli.progress.err", shown)
    with bars() as progress:
        if bars is ExperimentBars:
            progress.start("[/x]\x1b[2J", 3)
        else:
            progress.update("[/x]\x1b[2J", 1, 3)
    assert "[/x]" in file.getvalue()
    assert "\x1b[2J" not in file.getvalue()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_error_of_a_client_does_not_end_the_deployment(
    is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, file = console(force_terminal=is_terminal, color_system=None)
    monkeypatch.setattr(fedlatest.cli.deployment_table, "out", shown)
    federation = LocalFederation(tmp_path, app=tmp_path, num_nodes=1)
    federation.nodes = {}
    federation.superlink = SimpleNamespace(ready=True)  # type: ignore[assignment]
    status = JobStatus(last_round={"[/x]": 1})
    with ProgressTable(federation, 2) as table:
        table.update(status, [{"event": "failed", "client": "[/x]", "why": f"{HOSTILE}\nround 9: forged"}])
    assert "failed: [/x] no samples in [/data/part0.npz] :smile: " in file.getvalue()
    assert "\n" + "round 9" not in file.getvalue()
    assert "\x1b]" not in file.getvalue()


def test_a_node_that_was_never_online_is_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """node0 was online in an earlier command, node1 is now, node2 has never been."""
    shown, file = console(force_terminal=True, color_system=None)
    monkeypatch.setattr(fedlatest.cli.deployment_table, "out", shown)
    federation = LocalFederation(tmp_path, app=tmp_path, num_nodes=3)
    federation.superlink = SimpleNamespace(ready=True)  # type: ignore[assignment]
    states = ("offline", "online", "offline")
    federation.nodes = {name: SimpleNamespace(state=s) for name, s in zip(federation.names, states, strict=True)}  # type: ignore[misc]
    append_event(federation.log, "presence", who="node0", presence="online")
    with ProgressTable(federation, 2) as table:
        append_event(federation.log, "presence", who="node1", presence="online")
        append_event(federation.log, "presence", who="node2", presence="connecting")
        table.update(JobStatus(), [])
    assert re.findall(r"(node\d) +(.*?) {2,}", file.getvalue())[-3:] == [
        ("node0", "offline"), ("node1", "online"), ("node2", "never connected"),
    ]  # fmt: skip
    assert {*federation.names} - table.connected == {"node2"}


def test_an_audit_prints_the_names_of_clients_literally(tmp_path: Path) -> None:
    job = Job("[/x]", "b", database=Database.open(tmp_path / "ledger.sqlite"))
    job.round({"[/x]": [1, 2], "b": [10, 20]})
    done = fedlatest_here("audit", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 1
    assert "not found: 2 clients ([/x], b)" in done.stderr


def test_rows_of_tables_are_not_cut_or_wrapped_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = Table("name", box=None, pad_edge=False)
    table.add_row("word " * 40)
    for is_terminal, num_lines in ((False, 2), (True, 6)):
        shown = PlainConsole(file=io.StringIO(), force_terminal=is_terminal, color_system=None)
        shown.print(table)
        assert isinstance(shown.file, io.StringIO)
        assert len(shown.file.getvalue().splitlines()) == num_lines
