"""FedLaAvg as a Flower strategy, which can replace Flower's FedAvg in a ServerApp."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedlatest.algorithms import Algorithm, fedlaavg
from fedlatest.errors import BudgetError, ConfigError, LedgerError
from fedlatest.flower.job_record import JobRecord
from fedlatest.flower.message_records import from_record, to_record
from fedlatest.flower.outstanding_messages import OutstandingMessages
from fedlatest.flower.private_sums import make_plan
from fedlatest.flower.round_loop import RoundLoop, Timeouts
from fedlatest.flower.round_outcome import EventLog, RoundOutcome
from fedlatest.flower.server_algorithm import initial_server_arrays, job_config
from fedlatest.ledger import Ledger, Limits
from fedlatest.ledger.fixed_point import UPLOAD_DTYPE
from fedlatest.ledger.job_config import Layout
from fedlatest.ledger.job_folder import EVENTS, LEDGER, check_not_lost
from fedlatest.ledger.secure_settings import MASKED_DTYPE, SecureAggregation
from fedlatest.privacy import Privacy

log = logging.getLogger("flwr")
Evaluate = Callable[[int, ArrayRecord], MetricRecord | None]
"""Evaluates a model at the server: (number of rounds so far, model) -> metrics."""


class FedLaAvg(Strategy):
    """A strategy that keeps every client's latest update in the average while the client is unavailable.

    Args:
        job: Folder for the ledger, the event log and the run folder. A new Flower run with the same folder continues
            the job, however the previous run ended.
        cohort_size: Number of clients that are asked to train in a round (K in the paper).
        algorithm: `fedlaavg(weighting="update", empty_round="hold")` by default: updates are weighted by the clients'
            numbers of examples, and a round without uploads does not change the model.
        memory: "client" (default) keeps each latest update on its client only; "server" also keeps a copy at the
            server, which then needs no new epoch when a client loses its disk.
        clip_norm: Largest allowed norm of an update; unbounded by default.
        limits: What the server accepts from clients: largest weight, largest number of clients.
        secure: Mask the uploads, so that the server learns only their sum over a cohort (docs/privacy.md). True stands
            for `SecureAggregation(min_cohort=max(3, half of cohort_size))`.
        registered_only: Accept only nodes whose key is registered (`flwr supernode register`).
        unit: Step of the fixed-point grid to which updates are rounded.
        seed: Seed of the algorithm.
        timeouts: Deadline of a round and other timeouts.
        min_clients: Number of clients to wait for before the first round.
        evaluate_nodes_every: Evaluate on the clients every so many rounds; 0 for never.
        evaluate_every: Evaluate at the server and record a row of metrics every so many rounds.
        record: Further settings to write to the manifest of the run folder.
        privacy: Give this guarantee of differential privacy for every released model; None for no guarantee. The
            weighting must be "none", which is then the default.
        share_metrics: Record the metrics of the clients also in a private job, where they are not protected.

    Raises:
        ConfigError: An argument is out of range, or the algorithm cannot be deployed.
    """

    def __init__(
        self,
        *,
        job: Path | str,
        cohort_size: int,
        algorithm: Algorithm | None = None,
        memory: str | None = None,
        clip_norm: float | None = None,
        limits: Limits | None = None,
        secure: SecureAggregation | bool = False,
        registered_only: bool = False,
        unit: float | None = None,
        seed: int = 0,
        timeouts: Timeouts | None = None,
        min_clients: int = 1,
        evaluate_nodes_every: int = 0,
        evaluate_every: int = 1,
        record: Mapping[str, Any] | None = None,
        privacy: Privacy | None = None,
        share_metrics: bool = False,
    ) -> None:
        minimum = {"cohort_size": 1, "min_clients": 1, "evaluate_every": 1, "evaluate_nodes_every": 0}
        for name, value in zip(minimum, (cohort_size, min_clients, evaluate_every, evaluate_nodes_every), strict=True):
            if value < minimum[name]:
                raise ConfigError(f"{name}={value}: must be at least {minimum[name]}")
        settings = _secure_settings(secure, cohort_size)
        required = {
            "share_metrics=True": privacy is not None and not share_metrics,
            "secure=SecureAggregation(share_metrics=True)": settings is not None and not settings.share_metrics,
        }
        missing = " and ".join(option for option, is_missing in required.items() if is_missing)
        if evaluate_nodes_every and missing:
            raise ConfigError(
                f"evaluate_nodes_every={evaluate_nodes_every}: an evaluation on the clients sends their metrics to the "
                f"server, which are not private; allow it with {missing}, or set 0 and evaluate at the server"
            )
        self.algorithm = algorithm or fedlaavg(weighting="update" if privacy is None else "none", empty_round="hold")
        self.config = job_config(
            self.algorithm, memory=memory, clip_norm=clip_norm, unit=unit, seed=seed, secure=settings, privacy=privacy,
            share_metrics=share_metrics,
        )  # fmt: skip
        self.privacy = privacy
        self.job, self.cohort_size, self.timeouts, self.min_clients = Path(job), cohort_size, timeouts, min_clients
        self.evaluate_every, self.evaluate_nodes_every = evaluate_every, evaluate_nodes_every
        self.record = dict(record or {})
        self.limits, self.registered_only = limits, registered_only

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
        """Start the job or continue it, until it has `num_rounds` rounds in total.

        Args:
            grid: Flower's connection to the nodes.
            initial_arrays: The model before the first round; ignored when a job is continued.
            num_rounds: Total number of rounds, counted over all runs of the job.
            timeout: Deadline of a round in seconds, if the strategy has no `timeouts`.
            train_config: Values for the clients' training functions.
            evaluate_config: Values for the clients' evaluation functions.
            evaluate_fn: Evaluates the model at the server.

        Returns:
            The final model, and the metrics of the rounds of this run.

        Raises:
            ConfigError: The privacy budget is for fewer rounds.
            BudgetError: The privacy budget is spent.
        """
        if self.privacy is not None and num_rounds > self.privacy.rounds:
            raise ConfigError(
                f"num_rounds={num_rounds}: the privacy budget of the job is for {self.privacy.rounds} rounds; ask for "
                "at most as many, or start a new job with a budget for more"
            )
        with self.open_ledger(initial_arrays) as ledger:
            events = EventLog(self.job / EVENTS)
            try:
                timeouts = self.timeouts or Timeouts(deadline=timeout)
                loop = self._round_loop(grid, ledger, events, timeouts, train_config)
                settings = {"cohort_size": self.cohort_size, "evaluate_every": self.evaluate_every, **self.record}
                run = JobRecord(self.job / "run", ledger, self.algorithm, rounds=num_rounds, config=settings)
                evaluation = _Evaluation(self, loop, run, Result(), num_rounds, evaluate_config, evaluate_fn)
                self.summary()
                job: dict[str, Any] = {"job": ledger.job, "num_clients": len(ledger.clients()), "run": grid.run.run_id}
                events.write("job", rounds=num_rounds, round=ledger.round, **job)
                self._run_rounds(loop, run, evaluation, num_rounds)
                events.write("finished", round=ledger.round)
            except BaseException as error:
                if not _is_owner(ledger):  # the log is about the server that is
                    raise
                events.write("stopped", round=ledger.round, why=f"{type(error).__name__}: {error}")
                raise
        evaluation.result.arrays = to_record(loop.model)
        return evaluation.result

    def summary(self) -> None:
        """Log the algorithm and the settings of the job."""
        log.info("\t├──> %s, cohort size %s, job %s", self.algorithm.name, self.cohort_size, self.job)
        log.info("\t└──> config %s: %s", self.config.hash, self.config.as_dict())

    def open_ledger(self, initial_arrays: ArrayRecord, **options: Any) -> Ledger:
        """Open the ledger in the job's folder, or create it with the initial model; the caller closes it.

        Args:
            initial_arrays: The model of a new job.
            options: Further options of `Ledger`.

        Raises:
            LedgerError: The folder cannot be created, holds a job with other settings or another model, or its ledger
                was lost.
        """
        try:
            self.job.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise LedgerError(f"{self.job}: cannot create the job's folder ({error.strerror})") from error
        check_not_lost(self.job / LEDGER)
        model = from_record(initial_arrays)
        layout = Layout.of(model)
        return Ledger.open(
            self.job / LEDGER,
            config=self.config,
            layout=layout,
            arrays=lambda: initial_server_arrays(self.algorithm, layout, model),
            noise_plan=lambda: None if self.privacy is None else make_plan(self.privacy, self.algorithm),
            limits=self.limits,
            **options,
        )

    def _round_loop(
        self, grid: Grid, ledger: Ledger, events: EventLog, timeouts: Timeouts, train_config: ConfigRecord | None
    ) -> RoundLoop:
        dtype = UPLOAD_DTYPE if self.config.secure is None else MASKED_DTYPE
        upload_bytes = ledger.layout.size * dtype.itemsize
        return RoundLoop(
            OutstandingMessages(grid, timeouts.message_ttl, upload_bytes, registered_only=self.registered_only),
            ledger,
            self.algorithm,
            events,
            cohort_size=self.cohort_size,
            timeouts=timeouts,
            train_config=train_config,
        )

    def _run_rounds(self, loop: RoundLoop, run: JobRecord, evaluation: "_Evaluation", num_rounds: int) -> None:
        if not run.evaluated:
            evaluation.after_round(None)
        if loop.ledger.round < num_rounds:
            loop.wait_for_clients(self.min_clients, timeout=10 * loop.timeouts.deadline)
        try:
            while loop.ledger.round < num_rounds:
                evaluation.after_round(loop.run_round())
        except BudgetError:
            run.finish(loop.model)  # no further round is possible: the model is final
            raise
        run.finish(loop.model)

    # Flower's own round loop, and strategies that wrap another one (such as those for differential privacy), expect
    # replies to contain models. Here a reply contains a difference that must be counted exactly once, so only `start`
    # runs rounds.

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Raise NotImplementedError: `start` runs the rounds."""
        raise _unsupported()

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Raise NotImplementedError: `start` runs the rounds."""
        raise _unsupported()

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Raise NotImplementedError: `start` runs the rounds."""
        raise _unsupported()

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Raise NotImplementedError: `start` runs the rounds."""
        raise _unsupported()


def _is_owner(ledger: Ledger) -> bool:
    """Return whether this server may write to the ledger, as far as that can be known."""
    try:
        return ledger.is_owner
    except LedgerError:
        return True


def _secure_settings(secure: SecureAggregation | bool, cohort_size: int) -> SecureAggregation | None:
    """Return the settings of secure aggregation, or None if it is off."""
    if not secure:
        return None
    settings = SecureAggregation(min_cohort=max(3, -(-cohort_size // 2))) if secure is True else secure
    if cohort_size < settings.min_cohort:
        raise ConfigError(
            f"cohort_size={cohort_size}: a round of a secure job needs at least min_cohort={settings.min_cohort}"
        )
    return settings


def _unsupported() -> NotImplementedError:
    return NotImplementedError(
        "FedLaAvg runs its own rounds: call its start(). Flower's round loop and strategies that wrap another one "
        "expect replies with models; here they are differences that must be counted once. To bound updates, use "
        "clip_norm"
    )


@dataclass
class _Evaluation:
    """Evaluates the model at the server and on the clients, and records the metrics."""

    strategy: FedLaAvg
    loop: RoundLoop
    run: JobRecord
    result: Result
    num_rounds: int
    evaluate_config: ConfigRecord | None
    evaluate_fn: Evaluate | None

    def after_round(self, outcome: RoundOutcome | None) -> None:
        """Evaluate if an evaluation is due; `outcome` is None before the first round."""
        round = self.loop.ledger.round
        train = {} if outcome is None else outcome.metrics
        on_nodes: dict[str, float] = {}
        if outcome is not None:
            self.result.train_metrics_clientapp[round] = MetricRecord(dict(train))
            if self._is_due(self.strategy.evaluate_nodes_every):
                on_nodes = self._on_nodes(round)
        if not self._is_due(self.strategy.evaluate_every) and not (on_nodes and self.evaluate_fn is None):
            return
        row = self.run.add(outcome, self._at_server(round) or on_nodes, train)
        self.loop.events.write("evaluated", round=round, test_loss=row.test_loss, test_accuracy=row.test_accuracy)

    def _is_due(self, every: int) -> bool:
        round = self.loop.ledger.round
        return every > 0 and (round % every == 0 or round >= self.num_rounds)

    def _on_nodes(self, round: int) -> dict[str, float]:
        metrics = self.loop.evaluate(self.evaluate_config)
        if metrics:
            self.result.evaluate_metrics_clientapp[round] = MetricRecord(dict(metrics))
            self.loop.events.write("evaluated_on_nodes", round=round, metrics=metrics)
        return metrics

    def _at_server(self, round: int) -> dict[str, float]:
        metrics = self.evaluate_fn(round, to_record(self.loop.model)) if self.evaluate_fn else None
        if metrics is None:
            return {}
        self.result.evaluate_metrics_serverapp[round] = metrics
        return {name: float(value) for name, value in metrics.items() if isinstance(value, int | float)}
