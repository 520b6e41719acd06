"""Experiments of `run`, `reproduce`, `arena` and `sweep` on a Dask cluster (`--cluster`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedlatest.cli.app import show_notes

if TYPE_CHECKING:
    from fedlatest.experiments import Experiment, FederationBuilder


def check_cluster(address: str | None) -> None:
    """Raise an error if Dask is not installed or no scheduler answers, before any data is loaded.

    Args:
        address: The value of --cluster, if it was given.
    """
    if address is not None:
        from fedlatest.experiments.cluster_runs import check_address

        check_address(address)


def run_on_cluster(
    address: str,
    experiments: Sequence["Experiment"],
    folders: Sequence[Path],
    builder: "FederationBuilder",
    recipe: str,
    data: Path | None,
    seeds: Sequence[int],
    *,
    num_workers: int,
    device: str | None,
    replace: bool = False,
    log: Sequence[str] = (),
    later_work: float = 0.0,
    brief: bool = False,
) -> None:
    """Run experiments on a cluster and show their progress; runs that already have a checkpoint are resumed.

    Args:
        address: of the scheduler, or "local".
        experiments: what to run.
        folders: the run folder of each experiment.
        builder: holds the data in this process.
        recipe: the recipe with which the workers load the data.
        data: the folder with the data, if the user gave one.
        seeds: the seeds of every experiment.
        num_workers: number of worker processes of a local cluster.
        device: the device of the workers; None leaves the choice to JAX.
        replace: remove existing runs once the cluster has been checked, instead of resuming them.
        log: names of loggers; see `fedlatest.runs.loggers`.
        later_work: work that follows these experiments, for the estimate of the remaining time.
        brief: do not print a line for each finished experiment.

    Raises:
        KeyboardInterrupt: the user stopped the runs, which have written checkpoints.
    """
    from fedlatest.cli.progress import BatchMonitor
    from fedlatest.experiments.cluster_runs import DataSource, connect
    from fedlatest.experiments.parallel_runs import group_by_program, single_batches
    from fedlatest.runs import RunFolder

    with connect(address, num_workers=min(num_workers, len(experiments)), device=device) as cluster:
        accelerated = cluster.check(folders[0].parent)
        show_notes(cluster.notes)
        if accelerated:
            batches = group_by_program(experiments, folders, builder, seeds)
        else:
            batches = single_batches(experiments, folders)
        if replace:
            for folder in folders:
                RunFolder(folder).remove_run()
        with BatchMonitor(batches, later_work, brief=brief) as monitor:
            cluster.run(
                batches, DataSource(recipe, data), seeds, monitor.on_progress,
                on_idle=monitor.on_idle, log=log,
            )  # fmt: skip
