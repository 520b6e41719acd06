"""Progress bars for loading and running, and a graceful stop on Ctrl-C."""

import signal
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from fedlatest.cli.app import err

if TYPE_CHECKING:
    from fedlatest.experiments.parallel_runs import Batch, BatchProgress
    from fedlatest.simulation import Progress as SimulationProgress
    from fedlatest.simulation.printed_progress import PrintedProgress


class GracefulStop:
    """Context in which the first SIGINT or SIGTERM sets `requested` and the second raises KeyboardInterrupt.

    A signal that is ignored remains ignored: a script that starts a command in the background ignores SIGINT.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> "GracefulStop":
        handled = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self._handle) for number in handled}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        err.print(
            "stopping after the current block of rounds, with a checkpoint; press Ctrl-C again to stop immediately",
            soft_wrap=True,
        )


class RoundsPerSecond(ProgressColumn):
    """A column that shows the speed in rounds per second, and before the first rounds that they are compiled."""

    def render(self, task: Task) -> Text:
        """Return the text of the column."""
        if task.fields.get("compiling"):
            return Text("compiling")
        return Text("" if task.speed is None else f"{task.speed:,.0f} rounds/s")


class ExperimentBars:
    """One progress bar per experiment, and an estimate of time and memory once the first rounds are timed.

    If the output is not a terminal, lines are printed instead, at most one every few seconds.
    """

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:>12}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:>6.0f}/{task.total:.0f}", markup=False),
            RoundsPerSecond(),
            TimeRemainingColumn(),
            console=err,
            speed_estimate_period=20,
        )

        self._lines: PrintedProgress | None = None

    def __enter__(self) -> "ExperimentBars":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def start(self, name: str, rounds: int) -> None:
        """Add a bar for the next experiment."""
        self._task = self._progress.add_task(name, total=rounds, compiling=True, visible=err.is_terminal)
        self._estimate_shown, self._started = False, False
        self._lines = None
        if not (err.is_terminal or err.quiet):
            from fedlatest.simulation.printed_progress import PrintedProgress

            self._lines = PrintedProgress(name, file=err.file)
            self._lines.begin()

    def update(self, progress: "SimulationProgress") -> None:
        """Show the progress of the current experiment."""
        if not self._started:  # a resumed run starts at its checkpoint; earlier rounds do not count for the speed
            self._progress.reset(self._task, completed=progress.round)
            self._started = True
            for note in progress.notes:
                self._progress.console.print(note, soft_wrap=True)
        else:
            self._progress.update(self._task, compiling=False)
        self._progress.update(self._task, completed=progress.round, total=progress.rounds)
        if self._lines is not None:
            self._lines(progress)
        if not self._estimate_shown and progress.seconds_left is not None:
            self._estimate_shown = True
            if progress.seconds_left > 10:
                memory = f"{progress.bytes_needed / 2**30:.2f} GiB of memory"
                self._progress.console.print(f"about {format_duration(progress.seconds_left)} left, {memory}")


class LoadingBars:
    """One progress bar per step of loading a data set; nothing is shown if no progress is reported."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:>24}", markup=False),
            BarColumn(bar_width=30),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "LoadingBars":
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def update(self, step: str, done: int, total: int | None) -> None:
        """Show the progress of one step of loading.

        Args:
            step: description of the step.
            done: bytes done.
            total: bytes in all; None if unknown.
        """
        self._progress.start()  # does nothing if already started
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=total)
        self._progress.update(self._tasks[step], completed=done, total=total)


class BatchBars:
    """One bar for all batches together, weighted by their estimated work, and one for each batch that is running.

    Args:
        batches: the batches that run now.
        later_work: estimated work of batches that will run afterwards, included in the remaining time.
        brief: do not print a line for each finished batch.
    """

    def __init__(self, batches: "Sequence[Batch]", later_work: float = 0.0, *, brief: bool = False) -> None:
        from fedlatest.experiments.parallel_runs import work

        self._progress = Progress(
            TextColumn("{task.description:>40}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[status]:>12}", markup=False),
            TimeRemainingColumn(),
            console=err,
            speed_estimate_period=120,
        )
        self._batches, self._num_done, self._brief = batches, 0, brief
        self._work = [sum(work(experiment) for experiment in batch.experiments) for batch in batches]
        self._overall = self._progress.add_task("all", total=sum(self._work) + later_work, status=self._count())
        self._tasks: dict[int, TaskID] = {}
        self._last_round: dict[int, int] = {}

    def __enter__(self) -> "BatchBars":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def update(self, progress: "BatchProgress") -> None:
        """Show the progress of one batch."""
        number, batch = progress.batch, self._batches[progress.batch]
        rounds = batch.experiments[0].values["rounds"]
        if number not in self._tasks:  # rounds that were done before this command are subtracted from the total
            self._tasks[number] = self._progress.add_task(_title(batch), total=rounds, status="")
            self._last_round[number] = progress.round
            self._shrink(self._work[number] * progress.round / rounds)
        # Experiments of a batch may resume from different rounds, so the round can go back.
        new_rounds = max(0, progress.round - self._last_round[number])
        self._last_round[number] = progress.round
        in_time = "until" in batch.experiments[0].values  # then the number of rounds is not known in advance
        status = f"{progress.round / rounds:.0%}" if in_time else f"{progress.round}/{rounds}"
        self._progress.update(self._tasks[number], completed=progress.round, status=status)
        if progress.done:
            self._num_done += len(batch.experiments)
            self._progress.remove_task(self._tasks[number])
            if not self._brief:
                text = f"{_title(batch)}: done ({self._count()})"
                self._progress.console.print(text, highlight=False, soft_wrap=True)
        self._progress.update(self._overall, advance=self._work[number] * new_rounds / rounds, status=self._count())

    def _shrink(self, amount: float) -> None:
        [overall] = [task for task in self._progress.tasks if task.id == self._overall]
        self._progress.update(self._overall, total=(overall.total or 0) - amount)

    def _count(self) -> str:
        return f"{self._num_done}/{sum(len(batch.experiments) for batch in self._batches)} runs"


class BatchMonitor:
    """Shows the progress of batches and passes Ctrl-C on to them; a context manager."""

    def __init__(self, batches: "Sequence[Batch]", later_work: float = 0.0, *, brief: bool = False) -> None:
        self._stop, self._bars, self._brief = GracefulStop(), BatchBars(batches, later_work, brief=brief), brief

    def __enter__(self) -> "BatchMonitor":
        self._stop.__enter__()
        self._bars.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.__exit__(*error)
        self._stop.__exit__(*error)

    def on_progress(self, progress: "BatchProgress") -> None:
        """Show progress; raise KeyboardInterrupt if the user wants to stop."""
        self._bars.update(progress)
        diverged = [] if self._brief else [f"{name}: {reason}" for name, reason in progress.diverged.items()]
        for message in (progress.note, *diverged):
            if message:
                err.print(Text(message, style="yellow"), soft_wrap=True)
        self.on_idle()

    def on_idle(self) -> None:
        """Raise KeyboardInterrupt if the user wants to stop."""
        if self._stop.requested:
            raise KeyboardInterrupt


def format_duration(seconds: float) -> str:
    """Format a duration in minutes and seconds.

    >>> format_duration(130)
    '2 min 10 s'
    """
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def _title(batch: "Batch") -> str:
    first, *others = (experiment.name for experiment in batch.experiments)
    return f"{first} and {len(others)} more" if others else first
