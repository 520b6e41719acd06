"""A Flower grid in one process, without Flower's processes: to try a job in seconds, and for tests."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

ReplyHook = Callable[[int, Message], Message | None]
"""Called with a node id and its reply; returns the reply that the server gets, or None if it is lost."""


@dataclass
class LocalNode:
    """A client app with its context; while it is not online, it neither gets nor sends messages."""

    app: ClientApp
    context: Context
    online: bool = True
    public_key: bytes = b""
    name: str = ""


@dataclass
class LocalGrid(Grid):
    """Replaces Flower's SuperLink and SuperNodes. A node handles a message when its reply is pulled.

    Args:
        nodes: The nodes by id; `add` adds one, and setting `online` of a node takes it offline or brings it back.
        on_reply: Called with each reply; may change it or drop it.
        before_pull: Called before replies are pulled.
    """

    nodes: dict[int, LocalNode] = field(default_factory=dict)
    on_reply: ReplyHook = lambda node, message: message
    before_pull: Callable[[], None] = lambda: None
    _run: Run = field(default_factory=lambda: Run.create_empty(run_id=1))
    _undelivered: dict[str, Message] = field(default_factory=dict)  # by message id
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        """Set the task identity that Flower requires of a process that creates messages."""
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, self._run.run_id, SUPERLINK_NODE_ID

    def add(
        self,
        app: ClientApp,
        node_config: Mapping[str, Any],
        *,
        run_config: Mapping[str, Any] | None = None,
        public_key: bytes = b"",
        name: str = "",
    ) -> int:
        """Add a node and return its id.

        Args:
            app: The client app.
            node_config: What `flower-supernode --node-config` sets; it must have a `state-dir`.
            run_config: What `flwr run -c` sets.
            public_key: The node's registered key.
            name: The name under which the key is registered.
        """
        node = 1000 + next(self._numbers)
        context = Context(self._run.run_id, node, dict(node_config), RecordDict(), dict(run_config or {}))
        self.nodes[node] = LocalNode(app, context, public_key=public_key, name=name)
        return node

    def set_run(self, run: Run) -> None:
        """Set the Flower run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The Flower run."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Create a message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the nodes that are online."""
        return [number for number, node in self.nodes.items() if node.online]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the nodes that are online, with their keys."""
        online = {number: self.nodes[number] for number in self.get_node_ids()}
        return [NodeInfo(node_id=number, public_key=node.public_key, name=node.name) for number, node in online.items()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Store messages for nodes and return their ids."""
        identifiers = []
        for message in messages:
            identifier = f"message-{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = identifier
            self._undelivered[identifier] = message
            identifiers.append(identifier)
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Let the online nodes handle their messages, and return the replies."""
        self.before_pull()
        replies = []
        for identifier in message_ids:
            message = self._undelivered.get(identifier)
            node = self.nodes.get(message.metadata.dst_node_id) if message else None
            if message is None or node is None or not node.online:
                continue
            del self._undelivered[identifier]
            reply = self.on_reply(message.metadata.dst_node_id, self._handle(node, message))
            if reply is not None:
                replies.append(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push the messages and pull once: online nodes reply at once, the others not at all."""
        del timeout
        return self.pull_messages(self.push_messages(messages))

    def _handle(self, node: LocalNode, message: Message) -> Message:
        message.content = deepcopy(message.content)  # an app may change it, and nodes may share it
        try:
            return node.app(message, node.context)
        except Exception as error:
            return Message(Error(code=2, reason=f"{type(error).__name__}: {error}"), reply_to=message)
