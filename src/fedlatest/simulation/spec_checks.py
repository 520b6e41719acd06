"""Checks of an `ExperimentSpec` before anything is compiled: ranges, shapes, and what can be combined."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from fedlatest.algorithms.base import Algorithm, Direction
from fedlatest.algorithms.server_optimizer import check_transformation
from fedlatest.availability import Availability
from fedlatest.data import Federation
from fedlatest.delays import Timing
from fedlatest.errors import ConfigError
from fedlatest.models import Loss, Model
from fedlatest.models.shapes import parameter_shapes
from fedlatest.privacy import Privacy
from fedlatest.simulation.augmentation import check_augmentation
from fedlatest.simulation.device_data import expand
from fedlatest.simulation.private_rounds import kind_of_uploads
from fedlatest.simulation.row_storage import check_storage

if TYPE_CHECKING:
    from fedlatest.simulation.experiment_spec import ExperimentSpec


def check_spec(spec: "ExperimentSpec") -> None:
    """Raise ConfigError if a value of a spec is out of range, or if its parts do not fit together."""
    _check_parts(spec)
    num_clients, seeds, rate = spec.federation.num_clients, spec.seeds, spec.learning_rate
    if not 1 <= spec.cohort_size <= num_clients:
        raise ConfigError(f"cohort_size={spec.cohort_size}: choose 1 .. {num_clients} (the number of clients)")
    if spec.availability.num_clients != num_clients:
        raise ConfigError(
            f"availability covers {spec.availability.num_clients} clients, the federation has {num_clients}"
        )
    for name in ("num_local_steps", "batch_size"):
        if getattr(spec, name) < 1:
            raise ConfigError(f"{name}={getattr(spec, name)}: must be at least 1")
    if not callable(rate) and not (np.isfinite(rate) and rate > 0):
        raise ConfigError(f"learning_rate={rate}: must be a finite number above 0, or a schedule")
    if callable(rate) and spec.schedule is not None:
        raise ConfigError(
            "schedule: learning_rate is a schedule already; give a number and a schedule, or one schedule"
        )
    if len(seeds) == 0 or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds={tuple(seeds)}: give at least one seed, each once")
    if not all(0 <= seed < 2**32 for seed in seeds):
        raise ConfigError(f"seeds={tuple(seeds)}: each must be in 0 .. 2^32 - 1")
    if spec.client_optimizer is not None:
        check_transformation("client_optimizer", spec.client_optimizer)
        if "plain_sgd" in spec.algorithm.requires:
            raise ConfigError(f"client_optimizer: {spec.algorithm.name} requires plain local SGD; leave it out")
    if spec.augmentation is not None:
        check_augmentation(spec.augmentation, _one_sample(spec.federation))
    _check_rates(spec, num_clients)
    check_storage(spec.client_rows, spec.remembered_dtype)
    if spec.privacy is not None:
        _check_privacy(spec, spec.privacy)
    if spec.timing is not None:
        _check_timing(spec, spec.timing)
    if spec.algorithm.buffer is not None:
        _check_asynchronous(spec)
    _check_outputs(spec.federation, spec.model, spec.loss)


def _check_parts(spec: "ExperimentSpec") -> None:
    """Raise ConfigError if the algorithm, the model or the availability is something else, such as its factory."""
    parts: tuple[tuple[str, Any, type, str], ...] = (
        ("federation", spec.federation, Federation, "samples.to_federation(partition)"),
        ("model", spec.model, Model, "logistic(num_features=..., num_classes=...)"),
        ("algorithm", spec.algorithm, Algorithm, "fedlaavg()"),
        ("availability", spec.availability, Availability, "bernoulli(rates) or diurnal(groups, period=...)"),
        *([] if spec.timing is None else [("timing", spec.timing, Timing, "Timing(Delays(training=10))")]),
    )
    for name, value, kind, example in parts:
        if isinstance(value, kind):
            continue
        called = getattr(value, "__name__", None)
        if callable(value) and called:
            raise ConfigError(f"{name}: {called} is a function that makes one; call it, as in {called}(...)")
        seen = f"array of shape {value.shape}" if hasattr(value, "shape") else type(value).__name__
        raise ConfigError(f"{name}: expected what a factory returns, such as {example}, not {_article(seen)} {seen}")


def _article(noun: str) -> str:
    return "an" if noun[:1].lower() in "aeiou" else "a"


def _check_timing(spec: "ExperimentSpec", timing: Timing) -> None:
    number, num_clients = timing.delays.num_clients, spec.federation.num_clients
    if spec.algorithm.pooled:
        raise ConfigError(f"timing: {spec.algorithm.name} trains on pooled data and has no clients that could be slow")
    if number is not None and number != num_clients:
        raise ConfigError(f"delays are given for {number} clients, the federation has {num_clients}")
    if timing.answers is not None and timing.answers > spec.cohort_size:
        raise ConfigError(
            f"answers={timing.answers}: only {spec.cohort_size} clients are asked (cohort_size); give at most as many"
        )
    if spec.tabulated and timing.seconds_per_round is not None and timing.until is None:
        raise ConfigError("until: the availability of a tabulated experiment must be known in advance; say until when")


def _check_asynchronous(spec: "ExperimentSpec") -> None:
    algorithm, timing = spec.algorithm, spec.timing
    if timing is None or timing.seconds_per_round is None:
        raise ConfigError(
            f"timing: {algorithm.name} is asynchronous; give the delays of the clients and seconds_per_round, such as "
            "timing=Timing(Delays(training=10), seconds_per_round=60)"
        )
    if timing.deadline is not None or timing.answers is not None:
        raise ConfigError(f"deadline, answers: {algorithm.name} is asynchronous, no round ends; leave them out")
    unsupported = {
        "start": algorithm.start is not None,
        "brief": algorithm.brief is not None,
        "after_merge": algorithm.after_merge is not None,
        "direction with an offset": not isinstance(algorithm.direction, Direction)
        or algorithm.direction.offset is not None,
        "private state": bool(spec.one_client.private),
    }
    found = [name for name, is_used in unsupported.items() if is_used]
    if found:
        raise ConfigError(f"algorithm {algorithm.name}: an asynchronous algorithm cannot have {found[0]}")
    if algorithm.buffer is not None and algorithm.buffer < 1:
        raise ConfigError(f"buffer={algorithm.buffer}: must be at least 1")
    options = {
        "privacy": spec.privacy is not None,
        f"client_rows={spec.client_rows}": spec.client_rows not in ("auto", "all"),
        f"remembered_dtype={spec.remembered_dtype}": spec.remembered_dtype is not None,
    }
    for option, is_given in options.items():
        if is_given:
            raise ConfigError(f"{option}: not supported by asynchronous algorithms; leave it out")


def _check_privacy(spec: "ExperimentSpec", privacy: Privacy) -> None:
    privacy.mechanism_for(kind_of_uploads(spec.algorithm))
    if spec.rounds > privacy.rounds:
        raise ConfigError(
            f"rounds={spec.rounds}: the privacy budget is for {privacy.rounds} rounds; give privacy as many rounds"
        )
    if privacy.delta >= 1 / spec.federation.num_clients:
        raise ConfigError(
            f"delta={privacy.delta:g}: must be below 1 / (number of clients) = {1 / spec.federation.num_clients:g}"
        )
    if spec.remembered_dtype is not None:
        raise ConfigError(
            f"remembered_dtype={spec.remembered_dtype}: rounds updates after they are clipped, which may exceed the "
            "privacy budget; leave it out"
        )


def _check_rates(spec: "ExperimentSpec", num_clients: int) -> None:
    if spec.rates is None:
        if "rates" in spec.algorithm.requires:
            raise ConfigError(f"rates: {spec.algorithm.name} needs the participation rate of each client")
        return
    rates = np.asarray(spec.rates, float)
    if rates.shape != (num_clients,) or not ((rates > 0) & (rates <= 1)).all():
        raise ConfigError(f"rates: give {num_clients} participation rates in (0, 1], one per client")


def _one_sample(federation: Federation) -> Any:
    """Return the shapes of a batch of one sample, as a model takes it."""
    row = jax.tree.map(lambda leaf: leaf[:1], federation.features)
    return jax.eval_shape(expand, row, federation.table)


def _check_outputs(federation: Federation, model: Model, loss: Loss) -> None:
    """Raise ConfigError if the model has too few outputs: a cross-entropy would silently be wrong."""
    row, table = jax.tree.map(lambda leaf: leaf[:1], federation.features), federation.table
    labels = federation.labels
    if loss.name == "softmax_cross_entropy" and labels.ndim > 1:
        raise ConfigError(
            f"the labels have the shape {labels.shape}, {loss.name} takes one class per sample; convert one-hot labels "
            "with labels.argmax(axis=1)"
        )
    try:
        outputs = jax.eval_shape(
            lambda params, row, table: model.apply(params, expand(row, table)), parameter_shapes(model.init), row, table
        )
    except (TypeError, ValueError) as error:
        settings = ", ".join(f"{name}={value}" for name, value in model.settings.items())
        shapes = [leaf.shape[1:] for leaf in jax.tree.leaves(row)]
        raise ConfigError(
            f"the model{f' ({settings})' if settings else ''} cannot be applied to samples of shape "
            f"{shapes[0] if len(shapes) == 1 else shapes}: {str(error).splitlines()[0]}"
        ) from error
    if loss.name == "sigmoid_cross_entropy" and outputs.ndim > 1:
        raise ConfigError(f"the model has {outputs.shape[-1]} outputs per sample, {loss.name} takes one logit")
    if loss.name == "softmax_cross_entropy" and outputs.shape[-1] < federation.num_labels:
        raise ConfigError(f"the model has {outputs.shape[-1]} outputs, the data {federation.num_labels} labels")
