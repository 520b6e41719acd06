"""FedLaAvg as a Flower strategy: put it where FedAvg stood, and give it a folder for its ledger."""

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedlatest.algorithms import Algorithm, fedlaavg
from fedlatest.errors import ConfigError, LedgerError
from fedlatest.flower.calls import Switchboard
from fedlatest.flower.journal import Journal
from fedlatest.flower.record import JobRecord
from fedlatest.flower.records import from_record, to_record
from fedlatest.flower.rounds import Pace, RoundLoop
from fedlatest.flower.tally import Tally
from fedlatest.ledger import Ledger
from fedlatest.ledger.layout import Layout
from fedlatest.ledger.steering import first_arrays, job_config
from fedlatest.ledger.units import ON_THE_WIRE

log = logging.getLogger("flwr")
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]


class FedLaAvg(Strategy):
    """Every client's latest update stays in the average while the client is away.

    `job` is a folder for the ledger, the event log and the run folder; a new Flower run with the same folder goes on
    where the last one ended, however it ended. `cohort_size` is how many clients a round asks. The algorithm is
    FedLaAvg with updates weighted by samples, in which a round without participants leaves the model alone; fedavg()
    and fedadam() can take its place for a comparison. `memory="server"` keeps a copy of every client's update at the
    server, which then recovers at once from a client's lost disk. `clip_norm` bounds an update's norm; `unit` is the
    grid that updates are rounded to.
    """

    def __init__(
        self,
        *,
        job: Path | str,
        cohort_size: int,
        algorithm: Algorithm | None = None,
        memory: str | None = None,
        clip_norm: float | None = None,
        unit: float | None = None,
        seed: int = 0,
        pace: Pace | None = None,
        min_clients: int = 1,
        evaluate_nodes_every: int = 0,
        evaluate_every: int = 1,
        record: Mapping[str, Any] | None = None,
    ) -> None:
        if min(min_clients, evaluate_every) < 1 or evaluate_nodes_every < 0:
            raise ConfigError("min_clients and evaluate_every are at least 1, evaluate_nodes_every at least 0 (never)")
        self.algorithm = algorithm or fedlaavg(weighting="update", empty_round="hold")
        self.config = job_config(self.algorithm, memory=memory, clip_norm=clip_norm, unit=unit, seed=seed)
        self.job, self.cohort_size, self.pace, self.min_clients = Path(job), cohort_size, pace, min_clients
        self.evaluate_every, self.evaluate_nodes_every = evaluate_every, evaluate_nodes_every
        self.record = dict(record or {})

    def summary(self) -> None:
        """Log what is run."""
        log.info("\t├──> %s, %s clients a round, job %s", self.algorithm.name, self.cohort_size, self.job)
        log.info("\t└──> config %s: %s", self.config.hash, self.config.as_dict())

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 60.0,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Evaluate | None = None,
    ) -> Result:
        """Play the job up to `num_rounds` rounds in all; `timeout` is a round's deadline if `pace` says none."""
        ledger = self.open_ledger(initial_arrays)
        journal = Journal(self.job / "events.jsonl")
        pace = self.pace or Pace(deadline=timeout)
        board = Switchboard(grid, pace.give_up, ledger.layout.size * ON_THE_WIRE.itemsize)
        loop = RoundLoop(
            board,
            ledger,
            self.algorithm,
            journal,
            cohort_size=self.cohort_size,
            pace=pace,
            train_config=train_config,
        )
        settings = {"cohort_size": self.cohort_size, "evaluate_every": self.evaluate_every, **self.record}
        run = JobRecord(self.job / "run", ledger, self.algorithm, rounds=num_rounds, config=settings)
        self.summary()
        clients = [board.name(member.client) for member in ledger.members()]
        journal.note("job", job=ledger.job, rounds=num_rounds, round=ledger.round, clients=clients, run=grid.run.run_id)
        result = Result()
        look = _Look(self, loop, run, journal, result, evaluate_config, evaluate_fn, num_rounds)
        if not run.evaluated:
            look(None)
        loop.wait_for(self.min_clients, seconds=10 * pace.deadline)
        while ledger.round < num_rounds:
            tally = loop.play_round()
            look(tally)
        run.finish(loop.model)
        journal.note("finished", round=ledger.round)
        result.arrays = to_record(loop.model)
        return result

    def open_ledger(self, initial_arrays: ArrayRecord) -> Ledger:
        """Begin the job, or go on with it."""
        try:
            self.job.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(f"{self.job}: cannot hold a job ({error.strerror})") from error
        model = from_record(initial_arrays)
        layout = Layout.of(model)
        return Ledger.open(
            self.job / "ledger.sqlite",
            config=self.config,
            layout=layout,
            arrays=lambda: first_arrays(self.algorithm, layout, model),
        )

    # Flower's own workflow, `Strategy.start`, waits for whoever was asked; ours does not, so these are never called.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used: rounds are played by `start`."""
        raise NotImplementedError("FedLaAvg plays its own rounds: call start(), not Flower's workflow")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Not used: rounds are played by `start`."""
        raise NotImplementedError("FedLaAvg plays its own rounds: call start(), not Flower's workflow")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used: rounds are played by `start`."""
        raise NotImplementedError("FedLaAvg plays its own rounds: call start(), not Flower's workflow")

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Not used: rounds are played by `start`."""
        raise NotImplementedError("FedLaAvg plays its own rounds: call start(), not Flower's workflow")


class _Look:
    """What is looked at after a round: the model at the server, on the nodes, and the record of both."""

    def __init__(
        self,
        strategy: FedLaAvg,
        loop: RoundLoop,
        run: JobRecord,
        journal: Journal,
        result: Result,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: Evaluate | None,
        num_rounds: int,
    ) -> None:
        self.strategy, self.loop, self.run, self.journal, self.result = strategy, loop, run, journal, result
        self.evaluate_config, self.evaluate_fn, self.num_rounds = evaluate_config, evaluate_fn, num_rounds

    def __call__(self, tally: Tally | None) -> None:
        round = self.loop.ledger.round
        last = round >= self.num_rounds
        train = {} if tally is None else tally.metrics
        if tally is not None:
            self.result.train_metrics_clientapp[round] = MetricRecord(dict(train))
        if round % self.strategy.evaluate_every and not last:
            return
        test: dict[str, float] = {}
        every = self.strategy.evaluate_nodes_every
        if every and tally is not None and (round % every == 0 or last):
            on_nodes = self.loop.evaluate(self.evaluate_config)
            if on_nodes:
                self.result.evaluate_metrics_clientapp[round] = MetricRecord(dict(on_nodes))
                test.update(on_nodes)
                self.journal.note("evaluated_on_nodes", round=round, **on_nodes)
        measured = self.evaluate_fn(round, to_record(self.loop.model)) if self.evaluate_fn else None
        if measured is not None:
            self.result.evaluate_metrics_serverapp[round] = measured
            test.update({name: float(value) for name, value in measured.items() if isinstance(value, int | float)})
        self.run.add(tally, test, train)
        row = self.run.folder.metrics().rows[-1]
        self.journal.note("evaluated", round=round, test_loss=row.test_loss, test_accuracy=row.test_accuracy)
