"""What the terminal shows, and which signals stop a run."""

import io
import os
import signal

import pytest
from rich.console import Console
from rich.progress import Progress

from fedlatest.cli import app as cli_app
from fedlatest.cli.progress import GracefulStop, RoundsPerSecond


@pytest.mark.parametrize("is_terminal", [True, False])
def test_prose_is_wrapped_between_words(monkeypatch: pytest.MonkeyPatch, is_terminal: bool) -> None:
    file = io.StringIO()
    monkeypatch.setattr(cli_app, "out", Console(file=file, force_terminal=is_terminal, width=20))
    cli_app.print_prose("There are enough rounds for the speed-up.")
    lines = [line.strip() for line in file.getvalue().splitlines()]
    wrapped = ["There are enough", "rounds for the", "speed-up."]
    assert lines == (wrapped if is_terminal else [" ".join(wrapped)])


def test_the_bar_says_that_a_run_is_compiled() -> None:
    with Progress(console=Console(file=io.StringIO())) as progress:
        task = progress.add_task("run", total=10, compiling=True)
        assert str(RoundsPerSecond().render(progress.tasks[0])) == "compiling"
        progress.update(task, compiling=False)
        assert str(RoundsPerSecond().render(progress.tasks[0])) == ""


@pytest.mark.parametrize("ignored", [True, False])
def test_stop_signal_that_is_ignored_remains_ignored(ignored: bool) -> None:
    inherited = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        with GracefulStop() as stop:
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert stop.requested == (not ignored)
