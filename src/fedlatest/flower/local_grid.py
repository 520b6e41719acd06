"""A grid in one process: Flower's apps without its processes, to try a job out in seconds and to test it."""

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

Mail = Callable[[int, Message], Message | None]
"""What the network makes of a reply from a node: itself, another, or None if it is lost."""


@dataclass
class LocalNode:
    """A client app with its context; a node that is not online gets no message and sends none."""

    app: ClientApp
    context: Context
    online: bool = True
    public_key: bytes = b""
    name: str = ""


@dataclass
class LocalGrid(Grid):
    """Plays the part of the SuperLink and the SuperNodes; a message is worked on when its reply is asked for."""

    nodes: dict[int, LocalNode] = field(default_factory=dict)
    mail: Mail = lambda node, message: message
    before_pull: Callable[[], None] = lambda: None
    _run: Run = field(default_factory=lambda: Run.create_empty(run_id=1))
    _out: dict[str, Message] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        """Flower wants every process that makes messages to know its task."""
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
        """Start a node; its id."""
        node = 1000 + next(self._numbers)
        context = Context(self._run.run_id, node, dict(node_config), RecordDict(), dict(run_config or {}))
        self.nodes[node] = LocalNode(app, context, public_key=public_key, name=name)
        return node

    def set_run(self, run: Run) -> None:
        """Set the run."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run."""
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are online."""
        return [number for number, node in self.nodes.items() if node.online]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The nodes that are online, with their keys."""
        online = {number: self.nodes[number] for number in self.get_node_ids()}
        return [NodeInfo(node_id=number, public_key=node.public_key, name=node.name) for number, node in online.items()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Take messages for nodes."""
        taken = []
        for message in messages:
            identifier = f"message-{next(self._numbers)}"
            message.metadata.__dict__["_message_id"] = identifier
            self._out[identifier] = message
            taken.append(identifier)
        return taken

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Let nodes that are online work on their messages, and collect what they reply."""
        self.before_pull()
        replies = []
        for identifier in message_ids:
            message = self._out.get(identifier)
            node = self.nodes.get(message.metadata.dst_node_id) if message else None
            if message is None or node is None or not node.online:
                continue
            del self._out[identifier]
            reply = self.mail(message.metadata.dst_node_id, self._work(node, message))
            if reply is not None:
                replies.append(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push, then pull once: nodes work at once or not at all."""
        del timeout
        return self.pull_messages(self.push_messages(messages))

    def _work(self, node: LocalNode, message: Message) -> Message:
        message.content = deepcopy(message.content)  # what an app does to it is of no concern to others
        try:
            return node.app(message, node.context)
        except Exception as error:
            return Message(Error(code=2, reason=f"{type(error).__name__}: {error}"), reply_to=message)
