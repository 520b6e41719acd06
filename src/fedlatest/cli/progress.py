"""Progress bars, and stopping politely."""

import signal
from collections.abc import Sequence
from types import FrameType

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
from fedlatest.experiments.parallel_runs import Job, News
from fedlatest.reproduction.papers import work
from fedlatest.simulation import Progress as Heard


class Stop:
    """A first Ctrl-C (or a polite kill) stops after the block at hand, with a checkpoint; a second one at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> "Stop":
        self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *problem: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        err.print("stopping at the next checkpoint; once more to stop at once")


class RoundsPerSecond(ProgressColumn):
    """Speed in rounds per second."""

    def render(self, task: Task) -> Text:
        """The column's text."""
        return Text("" if task.speed is None else f"{task.speed:,.0f} rounds/s")


class Bars:
    """A progress bar per experiment, and an estimate before the long part."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:>12}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:>6.0f}/{task.total:.0f}"),
            RoundsPerSecond(),
            TimeRemainingColumn(),
            console=err,
            speed_estimate_period=20,
        )

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._progress.stop()

    def begin(self, name: str, rounds: int) -> None:
        """A bar for the next experiment."""
        self._task = self._progress.add_task(name, total=rounds)
        self._estimated, self._fresh = False, True

    def hear(self, heard: Heard) -> None:
        """Move the bar."""
        if self._fresh:  # a resumed run begins where it was, not at a great speed from 0
            self._progress.reset(self._task, completed=heard.round)
            self._fresh = False
        self._progress.update(self._task, completed=heard.round)
        if not self._estimated and heard.seconds_left is not None:
            self._estimated = True
            if heard.seconds_left > 10:
                self._progress.console.print(
                    f"about {duration(heard.seconds_left)} to go, {heard.bytes_needed / 2**30:.2f} GiB of memory"
                )


class Loading:
    """A bar for each piece of loading data that takes a while."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:>24}"),
            BarColumn(bar_width=30),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=err,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "Loading":
        return self

    def __exit__(self, *problem: object) -> None:
        self._progress.stop()

    def hear(self, what: str, done: int, total: int | None) -> None:
        """Move the bar of one piece."""
        self._progress.start()  # nothing to show before; does nothing when started
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)


class ManyBars:
    """One bar for all runs together, weighted by their work, and one for each job that is at work."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._progress = Progress(
            TextColumn("{task.description:>40}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[said]:>12}"),
            TimeRemainingColumn(),
            console=err,
            speed_estimate_period=120,
        )
        self._jobs, self._num_done = jobs, 0
        self._work = [sum(work(experiment) for experiment in job.experiments) for job in jobs]
        self._overall = self._progress.add_task("all", total=sum(self._work), said=self._count())
        self._tasks: dict[int, TaskID] = {}
        self._rounds_heard: dict[int, int] = {}

    def __enter__(self) -> "ManyBars":
        self._progress.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._progress.stop()

    def hear(self, news: News) -> None:
        """Move the bars."""
        job, rounds = self._jobs[news.job], self._jobs[news.job].experiments[0].values["rounds"]
        if news.job not in self._tasks:  # what an earlier command did is not to be done: it leaves the total
            self._tasks[news.job] = self._progress.add_task(_title(job), total=rounds, said="")
            self._rounds_heard[news.job] = news.round
            self._shrink(self._work[news.job] * news.round / rounds)
        fresh = max(0, news.round - self._rounds_heard[news.job])  # of two that go on from different rounds, the second
        self._rounds_heard[news.job] = news.round
        self._progress.update(self._tasks[news.job], completed=news.round, said=f"{news.round}/{rounds}")
        if news.done:
            self._num_done += len(job.experiments)
            self._progress.remove_task(self._tasks[news.job])
            self._progress.console.print(f"{_title(job)}: done ({self._count()})", highlight=False, soft_wrap=True)
        self._progress.update(self._overall, advance=self._work[news.job] * fresh / rounds, said=self._count())

    def _shrink(self, amount: float) -> None:
        [overall] = [task for task in self._progress.tasks if task.id == self._overall]
        self._progress.update(self._overall, total=(overall.total or 0) - amount)

    def _count(self) -> str:
        return f"{self._num_done}/{sum(len(job.experiments) for job in self._jobs)} runs"


def _title(job: Job) -> str:
    first, *others = (experiment.name for experiment in job.experiments)
    return f"{first} and {len(others)} more" if others else first


def duration(seconds: float) -> str:
    """In words."""
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
