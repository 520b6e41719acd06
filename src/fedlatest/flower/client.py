"""The client side of a deployment: wraps a Flower ClientApp, or functions on NumPy arrays, as a fedlatest client."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedlatest.errors import ConfigError, DeclinedError, ProtocolError
from fedlatest.flower.eligibility import Eligible, all_of, by_command, by_hours, check_eligible
from fedlatest.flower.message_records import (
    CONFIG,
    METRICS,
    MODEL,
    NUM_EXAMPLES,
    PROTOCOL,
    ROUND,
    from_record,
    metrics_of,
    read_instruction,
    reply_message,
    to_record,
)
from fedlatest.ledger import (
    ClientStore,
    FolderStorage,
    Instruction,
    Layout,
    LocalUpdate,
    handle_instruction,
    load_or_create_client_id,
)
from fedlatest.ledger.client import fixed_point_update

# Keys of the node config.
STATE_DIR, NAME, HOURS, COMMAND = "state-dir", "name", "eligible-hours", "eligible-command"
MIN_COHORT = "min-cohort"
log = logging.getLogger("flwr")

Weights = dict[str, npt.NDArray[Any]]


class ClientTask(NamedTuple):
    """The second argument of a user's training or evaluation function; the first is the model."""

    round: int
    """Number of the round, from 1."""
    config: Mapping[str, Any]
    """The server's `train_config` or `evaluate_config`."""
    node_config: Mapping[str, Any]
    """The node config of Flower: `flower-supernode --node-config`."""
    run_config: Mapping[str, Any]
    """The run config of Flower: `flwr run -c`, with the defaults in the app's pyproject.toml."""


class ClientResult(NamedTuple):
    """What a user's training or evaluation function returns."""

    num_examples: int
    """Number of examples that were used; the weight of the client."""
    metrics: Mapping[str, float]
    """Such as {"train_loss": 0.3}."""
    arrays: Weights | None = None
    """The trained model; None after an evaluation."""


def client_app(
    train: Callable[[Weights, ClientTask], ClientResult],
    *,
    evaluate: Callable[[Weights, ClientTask], ClientResult] | None = None,
    eligible: Eligible | None = None,
    num_examples: Callable[[Context], int] | None = None,
) -> ClientApp:
    """Make a ClientApp from functions on NumPy arrays, with which PyTorch, JAX or scikit-learn can be used.

    Args:
        train: Gets the model's arrays by name and returns the trained ones. It may raise `DeclinedError` to decline
            the round.
        evaluate: Gets the model's arrays and returns metrics.
        eligible: Returns True if the client may train or evaluate now, otherwise the reason.
        num_examples: Returns the client's number of examples, which it reports before it has trained. It counts only
            once an update of the client has counted, with the weight of that update.
    """
    app = ClientApp(mods=[latest_mod(eligible=eligible, num_examples=num_examples)])

    @app.train()
    def _train_message(message: Message, context: Context) -> Message:
        result = train(from_record(_array_record(message)), _task(message, context))
        if result.arrays is None:
            raise ConfigError("the training function returned no arrays")
        return _result_message(result, message)

    if evaluate is not None:

        @app.evaluate()
        def _evaluate_message(message: Message, context: Context) -> Message:
            result = evaluate(from_record(_array_record(message)), _task(message, context))
            return _result_message(result._replace(arrays=None), message)

    return app


def latest_mod(*, eligible: Eligible | None = None, num_examples: Callable[[Context], int] | None = None) -> Mod:
    """Make a mod that turns a stock ClientApp into a fedlatest client: `ClientApp(mods=[latest_mod()])`.

    The app's training function does not change: it gets the model and returns the trained model, with `num-examples`
    among its metrics. The node config must name a folder that survives restarts (`state-dir`); it may set the client's
    name (`name`), when it is eligible (`eligible-hours`, `eligible-command`) and the smallest cohort in whose sum its
    update may be revealed (`min-cohort`: above 1, only jobs with secure aggregation are accepted).

    Args:
        eligible: Returns True if the client may train or evaluate now, otherwise the reason.
        num_examples: Returns the client's number of examples, which it reports before it has trained. It counts only
            once an update of the client has counted, with the weight of that update.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        instruction = read_instruction(message)
        if instruction is None:
            return _pass_on(message, context, call_next, eligible)
        disk = FolderStorage(_state_dir(context))
        if not instruction.client:
            instruction = replace(instruction, client=_name(context, disk))

        def train() -> LocalUpdate:
            check_eligible(_conditions(context, eligible))
            return _train(instruction, message, context, call_next)

        weight = num_examples(context) if num_examples and not instruction.ticket else 0
        minimum = _min_cohort(context)
        reply = handle_instruction(ClientStore(disk), instruction, train=train, weight=weight, min_cohort=minimum)
        if reply.why:
            log.info("fedlatest: %s (%s)", reply.kind, reply.why)
        return reply_message(reply, message)

    return mod


def _pass_on(message: Message, context: Context, call_next: ClientAppCallable, eligible: Eligible | None) -> Message:
    """Pass a message without an instruction to the app; an evaluation that is declined has 0 examples.

    A client that takes part in secure aggregation does not train without it: its reply would be the trained model.

    Raises:
        ProtocolError: this client trains with secure aggregation only.
    """
    if message.metadata.message_type != MessageType.EVALUATE:
        if _min_cohort(context) > 1 or _is_in_secure_job(context):
            raise ProtocolError("this client takes part in secure aggregation: it does not answer without masks")
        return call_next(message, context)
    if _min_cohort(context) > 1:
        log.info("fedlatest: declined to evaluate (%s is set: the server would learn the metrics)", MIN_COHORT)
        return _result_message(ClientResult(0, {}), message)
    try:
        check_eligible(_conditions(context, eligible))
        return call_next(message, context)
    except DeclinedError as error:
        log.info("fedlatest: declined to evaluate (%s)", error)
        return _result_message(ClientResult(0, {}), message)


def _train(instruction: Instruction, message: Message, context: Context, call_next: ClientAppCallable) -> LocalUpdate:
    """Call the app's training function and convert the trained model to an update in fixed point."""
    broadcast = from_record(_array_record(message))
    layout = Layout.of(broadcast)
    if layout.hash != instruction.layout:
        raise ProtocolError(f"the layout of the model is {layout.hash}, that of the job is {instruction.layout}")
    del message.content[PROTOCOL]
    reply = call_next(message, context)
    if reply.has_error():
        raise ProtocolError(f"the training function failed: {reply.error.reason}")
    metrics = metrics_of(reply)
    weight = metrics.pop(NUM_EXAMPLES, 0.0)
    if not weight > 0:
        raise ConfigError(f"the training function must return {NUM_EXAMPLES!r} above 0 among its metrics")
    local = from_record(_array_record(reply))
    return LocalUpdate(fixed_point_update(instruction, layout, broadcast, local, weight), weight, metrics)


def _task(message: Message, context: Context) -> ClientTask:
    record = message.content.get(CONFIG)
    config = dict(record) if isinstance(record, ConfigRecord) else {}
    number = config.pop(ROUND, 0)
    return ClientTask(number if isinstance(number, int) else 0, config, context.node_config, context.run_config)


def _result_message(result: ClientResult, message: Message) -> Message:
    numbers = {name: float(np.asarray(value)) for name, value in result.metrics.items()}
    records = RecordDict({METRICS: MetricRecord({**numbers, NUM_EXAMPLES: int(result.num_examples)})})
    if result.arrays is not None:
        records[MODEL] = to_record(result.arrays)
    return Message(records, reply_to=message)


def _array_record(message: Message) -> ArrayRecord:
    records = [record for record in message.content.values() if isinstance(record, ArrayRecord)]
    if len(records) != 1:
        raise ProtocolError(f"the message has {len(records)} ArrayRecords; expected one, with the model")
    return records[0]


def _state_dir(context: Context) -> str:
    folder = context.node_config.get(STATE_DIR)
    if not isinstance(folder, str) or not folder:
        raise ConfigError(
            f"the node config has no {STATE_DIR}; start the node with --node-config '{STATE_DIR}=\"FOLDER\"', "
            "where the folder survives restarts"
        )
    return folder


def _name(context: Context, disk: FolderStorage) -> str:
    name = context.node_config.get(NAME)
    return name if isinstance(name, str) and name else load_or_create_client_id(disk)


def _is_in_secure_job(context: Context) -> bool:
    folder = context.node_config.get(STATE_DIR)
    return isinstance(folder, str) and bool(folder) and any(Path(folder).glob("secure-*.json"))


def _min_cohort(context: Context) -> int:
    minimum = context.node_config.get(MIN_COHORT, 1)
    if not isinstance(minimum, int) or isinstance(minimum, bool) or minimum < 1:
        raise ConfigError(f"the node config has {MIN_COHORT}={minimum!r}; it must be an integer, at least 1")
    return minimum


def _conditions(context: Context, eligible: Eligible | None) -> Eligible:
    found = [] if eligible is None else [eligible]
    hours, command = context.node_config.get(HOURS), context.node_config.get(COMMAND)
    if isinstance(hours, str) and hours:
        found.append(by_hours(hours))
    if isinstance(command, str) and command:
        found.append(by_command(command))
    return all_of(*found)
