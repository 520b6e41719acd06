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
from fedlatest.flower.job_record import JobRecord
from fedlatest.flower.message_records import from_record, to_record
from fedlatest.flower.outstanding_messages import Switchboard
from fedlatest.flower.round_loop import Pace, RoundLoop
from fedlatest.flower.round_outcome import Journal, Tally
from fedlatest.flower.server_algorithm import initial_server_arrays, job_config
from fedlatest.ledger import Ledger
from fedlatest.ledger.fixed_point import UPLOAD_DTYPE
from fedlatest.ledger.job_config import Layout

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
        least = {"cohort_size": 1, "min_clients": 1, "evaluate_every": 1, "evaluate_nodes_every": 0}
        for name, value in zip(least, (cohort_size, min_clients, evaluate_every, evaluate_nodes_every), strict=True):
            if value < least[name]:
                raise ConfigError(f"{name}={value}: must be at least {least[name]}")
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
        ledger, journal = self.open_ledger(initial_arrays), Journal(self.job / "events.jsonl")
        try:
            return self._start(ledger, journal, grid, num_rounds, timeout, train_config, evaluate_config, evaluate_fn)
        except BaseException as error:
            journal.note("stopped", round=ledger.round, why=f"{type(error).__name__}: {error}")
            raise
        finally:
            ledger.database.close()

    def _start(
        self,
        ledger: Ledger,
        journal: Journal,
        grid: Grid,
        num_rounds: int,
        timeout: float,
        train_config: ConfigRecord | None,
        evaluate_config: ConfigRecord | None,
        evaluate_fn: Evaluate | None,
    ) -> Result:
        pace = self.pace or Pace(deadline=timeout)
        board = Switchboard(grid, pace.give_up, ledger.layout.size * UPLOAD_DTYPE.itemsize)
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
        clients = [board.name(member.id) for member in ledger.clients()]
        journal.note("job", job=ledger.job, rounds=num_rounds, round=ledger.round, clients=clients, run=grid.run.run_id)
        result = Result()
        look = _Look(self, loop, run, journal, result, evaluate_config, evaluate_fn, num_rounds)
        self._play(loop, run, look, num_rounds)
        journal.note("finished", round=ledger.round)
        result.arrays = to_record(loop.model)
        return result

    def _play(self, loop: RoundLoop, run: JobRecord, look: "_Look", num_rounds: int) -> None:
        if not run.evaluated:
            look(None)
        if loop.ledger.round < num_rounds:
            loop.wait_for(self.min_clients, seconds=10 * loop.pace.deadline)
        while loop.ledger.round < num_rounds:
            look(loop.play_round())
        run.finish(loop.model)

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
            arrays=lambda: initial_server_arrays(self.algorithm, layout, model),
        )

    # Flower's own workflow and its wrappers, such as those for differential privacy, take a reply for a model; here it
    # is a difference that must count once. So rounds are played by `start` alone.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used: rounds are played by `start`."""
        raise _not_flowers()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Not used: rounds are played by `start`."""
        raise _not_flowers()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Not used: rounds are played by `start`."""
        raise _not_flowers()

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Not used: rounds are played by `start`."""
        raise _not_flowers()


def _not_flowers() -> NotImplementedError:
    return NotImplementedError(
        "FedLaAvg plays its own rounds: call its start(). Flower's workflow and strategies that wrap another take "
        "replies for models; here they are differences that count exactly once. To bound updates, use clip_norm"
    )


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
        train = {} if tally is None else tally.metrics
        if tally is not None:
            self.result.train_metrics_clientapp[round] = MetricRecord(dict(train))
        on_nodes = self._on_nodes(round) if tally is not None and self._due(self.strategy.evaluate_nodes_every) else {}
        if not self._due(self.strategy.evaluate_every) and not (on_nodes and self.evaluate_fn is None):
            return
        test = self._at_server(round) or on_nodes
        row = self.run.add(tally, test, train)
        self.journal.note("evaluated", round=round, test_loss=row.test_loss, test_accuracy=row.test_accuracy)

    def _due(self, every: int) -> bool:
        round = self.loop.ledger.round
        return every > 0 and (round % every == 0 or round >= self.num_rounds)

    def _on_nodes(self, round: int) -> dict[str, float]:
        measured = self.loop.evaluate(self.evaluate_config)
        if measured:
            self.result.evaluate_metrics_clientapp[round] = MetricRecord(dict(measured))
            self.journal.note("evaluated_on_nodes", round=round, metrics=measured)
        return measured

    def _at_server(self, round: int) -> dict[str, float]:
        measured = self.evaluate_fn(round, to_record(self.loop.model)) if self.evaluate_fn else None
        if measured is None:
            return {}
        self.result.evaluate_metrics_serverapp[round] = measured
        return {name: float(value) for name, value in measured.items() if isinstance(value, int | float)}
