"""Running many experiments, for `reproduce`, `arena` and `sweep`: in this process, in several or on a cluster."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from fedlatest.cli.app import err, show_notes, use_device
from fedlatest.cli.cluster import check_cluster, run_on_cluster
from fedlatest.errors import ConfigError, RunFolderError

if TYPE_CHECKING:
    from fedlatest.experiments import Experiment, FederationBuilder
    from fedlatest.experiments.experiment import Load


class Resources(NamedTuple):
    """Where experiments run; the values of the options of the same name."""

    device: str | None
    workers: int | None
    cluster: str | None


class ManyRuns:
    """Runs experiments on one data set, which is loaded when the first experiment needs it.

    Args:
        recipe: the name of the recipe, with which workers of a cluster load the data.
        load: loads the data; it must be importable by name.
        data: the folder with the data, if the user gave one.
        root: the folder of all run folders, for messages.
        resources: where experiments run.
    """

    def __init__(self, recipe: str, load: "Load", data: Path | None, root: Path, resources: Resources) -> None:
        self.recipe, self.load, self.data, self.root, self.resources = recipe, load, data, root, resources
        self._builder: FederationBuilder | None = None

    @property
    def builder(self) -> "FederationBuilder":
        """Holds the data and builds federations; the first use chooses the device and loads the data."""
        from fedlatest.cli.progress import LoadingBars
        from fedlatest.experiments import FederationBuilder

        if self._builder is None:
            check_cluster(self.resources.cluster)
            use_device("cpu" if self.resources.cluster else self.resources.device)
            with LoadingBars() as loading:
                self._builder = FederationBuilder(self.load(self.data, on_progress=loading.update))
        return self._builder

    def run(
        self,
        experiments: Sequence["Experiment"],
        folders: Sequence[Path],
        seeds: Sequence[int],
        *,
        later_work: float = 0.0,
        brief: bool = False,
    ) -> int:
        """Run the experiments that are neither finished nor diverged; return how many these are.

        Args:
            experiments: what to run.
            folders: the run folder of each.
            seeds: the seeds of every experiment.
            later_work: work that follows this call, times its seeds, so that the estimate of the remaining time
                includes it.
            brief: do not print a line for each finished run.

        Raises:
            typer.Exit: the user stopped the runs, which have written checkpoints.
            RunFolderError: a folder holds another run.
        """
        from fedlatest.experiments.parallel_runs import default_workers

        pairs = list(zip(experiments, folders, strict=True))
        missing = [pair for pair in pairs if not is_complete(*pair, list(seeds))]
        if not missing:
            return 0
        chosen, places = zip(*missing, strict=True)
        known = len(self.builder.notes)
        for experiment in chosen:
            self.builder.check(experiment.values)
        show_notes(self.builder.notes[known:])
        num_workers = self.resources.workers or default_workers()
        try:
            self._run(list(chosen), list(places), list(seeds), num_workers, later_work / len(seeds), brief)
        except KeyboardInterrupt:
            err.print(f"stopped; run the same command again to continue (runs are in {self.root})", soft_wrap=True)
            raise typer.Exit(130) from None
        return len(missing)

    def _run(
        self,
        experiments: list["Experiment"],
        folders: list[Path],
        seeds: list[int],
        num_workers: int,
        later_work: float,
        brief: bool,
    ) -> None:
        import jax

        from fedlatest.cli.progress import BatchMonitor
        from fedlatest.experiments.parallel_runs import group_by_program, run_batches, single_batches
        from fedlatest.experiments.process_runs import run_batches_in_processes

        if self.resources.cluster:
            run_on_cluster(
                self.resources.cluster, experiments, folders, self.builder, self.recipe, self.data, seeds,
                num_workers=num_workers, device=self.resources.device, later_work=later_work, brief=brief,
            )  # fmt: skip
        elif jax.default_backend() != "cpu":
            batches = group_by_program(experiments, folders, self.builder, seeds)
            with BatchMonitor(batches, later_work, brief=brief) as monitor:
                run_batches(batches, self.builder, seeds, monitor.on_progress)
        else:
            batches, load = single_batches(experiments, folders), partial(self.load, self.data)
            with BatchMonitor(batches, later_work, brief=brief) as monitor:
                run_batches_in_processes(batches, load, seeds, monitor.on_progress, num_workers=num_workers)


def is_complete(experiment: "Experiment", path: Path, seeds: list[int]) -> bool:
    """Return whether a run has finished or diverged.

    Raises:
        RunFolderError: If the folder holds a run with another configuration.
    """
    from fedlatest.runs import RunFolder

    folder = RunFolder(path)
    if not folder.exists:
        return False
    manifest = folder.manifest
    existing = {**manifest["config"]["recipe"], "seeds": manifest["seeds"]}
    wanted = {**experiment.values, "seeds": seeds}
    for key in wanted:
        if existing.get(key) != wanted[key]:
            raise RunFolderError(
                f"{path}: holds a run with another configuration "
                f"({key} was {existing.get(key)!r}, now {wanted[key]!r}); choose another --out"
            )
    return manifest["status"] in ("finished", "diverged")


def check_at_least_one(**numbers: int | None) -> None:
    """Raise ConfigError if an option has a value below 1; None is an option that was not given."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ConfigError(f"--{name.replace('_', '-')} {number}: must be at least 1")
