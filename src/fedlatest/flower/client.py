"""The client side: any Flower ClientApp, or any function on NumPy arrays, as a client whose update stays."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
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
    OURS,
    ROUND,
    from_record,
    metrics_of,
    read_instruction,
    reply_with,
    to_record,
)
from fedlatest.ledger import (
    ClientStore,
    FolderStorage,
    Instruction,
    Layout,
    LocalUpdate,
    fixed_point_update,
    handle_instruction,
    load_or_create_client_id,
)

STATE_DIR, NAME, HOURS, COMMAND = "state-dir", "name", "eligible-hours", "eligible-command"
log = logging.getLogger("flwr")

Weights = dict[str, npt.NDArray[Any]]


class Assignment(NamedTuple):
    """What a function of the user's is told beside the model."""

    round: int
    config: Mapping[str, Any]
    """What the server says to everybody: `train_config` or `evaluate_config`."""
    node_config: Mapping[str, Any]
    run_config: Mapping[str, Any]


class Fitted(NamedTuple):
    """What a training or evaluating function returns; `arrays` are left out by one that evaluates."""

    num_examples: int
    metrics: Mapping[str, float]
    arrays: Weights | None = None


def latest_mod(*, eligible: Eligible | None = None, num_examples: Callable[[Context], int] | None = None) -> Mod:
    """Make a stock ClientApp one whose latest update stays in the average: `ClientApp(mods=[latest_mod()])`.

    The app's training function gets the model as ever and returns what it trained with `num-examples` among its
    metrics. The node's config says where the client keeps its memory (`state-dir`, which must survive restarts), and
    may say its name (`name`) and when it may work (`eligible-hours`, `eligible-command`). `num_examples` says how many
    a client has before it trains for the first time; a client that does not say counts like the mean of the others.
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
        reply = handle_instruction(ClientStore(disk), instruction, train=train, weight=weight)
        if reply.why:
            log.info("fedlatest: %s (%s)", reply.kind, reply.why)
        return reply_with(reply, message)

    return mod


def _pass_on(message: Message, context: Context, call_next: ClientAppCallable, eligible: Eligible | None) -> Message:
    """What is not ours goes to the app; an evaluation may be declined, and then counts no examples."""
    if message.metadata.message_type != MessageType.EVALUATE:
        return call_next(message, context)
    try:
        check_eligible(_conditions(context, eligible))
        return call_next(message, context)
    except DeclinedError as error:
        log.info("fedlatest: declined to evaluate (%s)", error)
        return _fitted(Fitted(0, {}), message)


def _train(instruction: Instruction, message: Message, context: Context, call_next: ClientAppCallable) -> LocalUpdate:
    """What the app's own training function makes of the model, as a value of ours."""
    broadcast = from_record(_array_record(message))
    layout = Layout.of(broadcast)
    if layout.hash != instruction.layout:
        raise ProtocolError(f"the model's layout is {layout.hash}, the job's {instruction.layout}")
    del message.content[OURS]
    reply = call_next(message, context)
    if reply.has_error():
        raise ProtocolError(f"the training function failed: {reply.error.reason}")
    metrics = metrics_of(reply)
    weight = metrics.pop(NUM_EXAMPLES, 0.0)
    if not weight > 0:
        raise ConfigError(f"the training function must say {NUM_EXAMPLES!r} above 0 among its metrics")
    local = from_record(_array_record(reply))
    return LocalUpdate(fixed_point_update(instruction, layout, broadcast, local, weight), weight, metrics)


def client_app(
    train: Callable[[Weights, Assignment], Fitted],
    *,
    evaluate: Callable[[Weights, Assignment], Fitted] | None = None,
    eligible: Eligible | None = None,
    num_examples: Callable[[Context], int] | None = None,
) -> ClientApp:
    """A ClientApp from functions on NumPy arrays: PyTorch, JAX, scikit-learn, anything.

    `train` gets the model's arrays by name and returns those that it trained. Raise `DeclinedError` to decline a round.
    """
    app = ClientApp(mods=[latest_mod(eligible=eligible, num_examples=num_examples)])

    @app.train()
    def _fit(message: Message, context: Context) -> Message:
        fitted = train(from_record(_array_record(message)), _assignment(message, context))
        if fitted.arrays is None:
            raise ConfigError("the training function returned no arrays")
        return _fitted(fitted, message)

    if evaluate is not None:

        @app.evaluate()
        def _evaluate(message: Message, context: Context) -> Message:
            fitted = evaluate(from_record(_array_record(message)), _assignment(message, context))
            return _fitted(fitted._replace(arrays=None), message)

    return app


def _assignment(message: Message, context: Context) -> Assignment:
    record = message.content.get(CONFIG)
    config = dict(record) if isinstance(record, ConfigRecord) else {}
    number = config.pop(ROUND, 0)
    return Assignment(number if isinstance(number, int) else 0, config, context.node_config, context.run_config)


def _fitted(fitted: Fitted, message: Message) -> Message:
    numbers = {name: float(np.asarray(value)) for name, value in fitted.metrics.items()}
    records = RecordDict({METRICS: MetricRecord({**numbers, NUM_EXAMPLES: int(fitted.num_examples)})})
    if fitted.arrays is not None:
        records[MODEL] = to_record(fitted.arrays)
    return Message(records, reply_to=message)


def _array_record(message: Message) -> ArrayRecord:
    records = [record for record in message.content.values() if isinstance(record, ArrayRecord)]
    if len(records) != 1:
        raise ProtocolError(f"a message with {len(records)} ArrayRecords; a model is one")
    return records[0]


def _state_dir(context: Context) -> str:
    folder = context.node_config.get(STATE_DIR)
    if not isinstance(folder, str) or not folder:
        raise ConfigError(f"start the node with --node-config '{STATE_DIR}=\"/a/folder/that/stays\"'")
    return folder


def _name(context: Context, disk: FolderStorage) -> str:
    name = context.node_config.get(NAME)
    return name if isinstance(name, str) and name else load_or_create_client_id(disk)


def _conditions(context: Context, eligible: Eligible | None) -> Eligible:
    found = [] if eligible is None else [eligible]
    hours, command = context.node_config.get(HOURS), context.node_config.get(COMMAND)
    if isinstance(hours, str) and hours:
        found.append(by_hours(hours))
    if isinstance(command, str) and command:
        found.append(by_command(command))
    return all_of(*found)
