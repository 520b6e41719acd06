"""The messages that the server has sent and that have not been answered, and the nodes they were sent to."""

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from flwr.app import Message, MessageType, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from fedlatest.errors import DeploymentError

log = logging.getLogger("flwr")
KEY_PREFIX = "key-"  # starts the id of a client that is identified by its registered key
UNREADABLE = (ValueError, KeyError, TypeError, IndexError)  # what Flower raises when it reads a forged message body
MAX_PULLED_BYTES = 256 * 2**20  # bytes of uploads held in memory at a time
MAX_PUSHED = 64  # messages per request to Flower


class OutstandingMessage(NamedTuple):
    """A message that was sent to a node and has not been answered."""

    kind: Literal["hello", "train", "rebase", "evaluate", "unmask"]
    node: int
    client: str  # empty for a "hello" to a node without a registered key
    round: int
    sent: float  # time


@dataclass
class OutstandingMessages:
    """Sends messages through Flower's grid and receives the replies.

    Flower addresses nodes by ids that change when a node restarts. This class maps them to clients, whose ids do not
    change.

    Args:
        grid: Flower's connection to the nodes.
        message_ttl: Seconds after which an unanswered message is dropped.
        upload_bytes: Size of one upload; limits how many replies are fetched at a time.
        registered_only: Send messages only to nodes with registered keys.
        clock: Returns the time in seconds.
    """

    grid: Grid
    message_ttl: float
    upload_bytes: int
    clock: Callable[[], float] = time.monotonic
    registered_only: bool = False
    clients: dict[int, str] = field(default_factory=dict)  # node id -> client
    nodes: dict[str, list[int]] = field(default_factory=dict)  # client -> its node ids, the newest last
    display_names: dict[str, str] = field(default_factory=dict)  # client -> name under which its key is registered
    online: set[int] = field(default_factory=set)  # node ids
    outstanding: dict[str, OutstandingMessage] = field(default_factory=dict)  # by message id
    flower_seconds: float = 0.0  # time spent in calls to Flower
    one_at_a_time: bool = False  # fetch replies one by one, because an unreadable one made others of its batch fail
    ignored_until: dict[int, float] = field(default_factory=dict)  # node id -> time of the next "hello"

    def refresh_nodes(self) -> list[tuple[int, str]]:
        """Update the set of online nodes.

        Returns:
            The nodes that are not identified yet and should be sent a "hello", each with the client id that follows
            from its registered key, or "" without one.
        """
        with self._calling_flower("list the online nodes"):
            nodes = list(self.grid.get_nodes())
        self.online = {node.node_id for node in nodes}
        greeted = {message.node for message in self.outstanding.values() if message.kind == "hello"}
        unknown = []
        for node in nodes:
            key = _client_of_key(node)
            if key:
                self.display_names[key] = node.name
            now = self.clock()
            ignored = now < self.ignored_until.get(node.node_id, 0.0) or (self.registered_only and not key)
            if node.node_id not in self.clients and node.node_id not in greeted and not ignored:
                unknown.append((node.node_id, key))
        return unknown

    def available(self) -> dict[str, int]:
        """Return the clients whose node is online, with the node; the newest one if a client has two nodes."""
        return {client: node for node, client in self.clients.items() if node in self.online}

    def node_of(self, client: str) -> int | None:
        """Return the node of a client that is online; the newest one if there are two."""
        return next((node for node in reversed(self.nodes.get(client, [])) if node in self.online), None)

    def busy(self) -> set[str]:
        """Return the clients that have an outstanding message."""
        return {message.client for message in self.outstanding.values() if message.client}

    def awaited(self, round: int, kinds: Collection[str] = ("train", "rebase")) -> list[OutstandingMessage]:
        """Return the outstanding messages of a round, without those to nodes that are offline."""
        return [
            message
            for message in self.outstanding.values()
            if message.round == round and message.kind in kinds and message.node in self.online
        ]

    def identify(self, node: int, client: str) -> None:
        """Record which client a node is, and drop messages to other nodes of that client."""
        other = self.node_of(client)
        if other is not None and other != node:
            log.warning(
                "fedlatest: client %s is connected from two nodes, %s and %s. Unless it has just been restarted, two "
                "machines use the same name or a copy of the same state folder; give each its own",
                self.display_name(client), other, node,
            )  # fmt: skip
        if any(each != node for each in self.nodes.get(client, [])):
            self.outstanding = {
                key: message
                for key, message in self.outstanding.items()
                if message.client != client or message.node == node
            }
        self.forget_node(node)
        self.clients[node] = client  # inserted last: `available` prefers the newest node of a client
        self.nodes.setdefault(client, []).append(node)

    def forget(self, client: str) -> None:
        """Forget the nodes of a client, so that they are sent a new "hello"."""
        for node in list(self.nodes.get(client, [])):
            self.forget_node(node)

    def forget_node(self, node: int) -> None:
        """Forget which client a node is, so that the node is sent a new "hello"."""
        client = self.clients.pop(node, None)
        if client is not None:
            self.nodes[client].remove(node)

    def ignore(self, node: int, seconds: float) -> None:
        """Send no "hello" to a node for some time, because it could not be identified."""
        self.ignored_until[node] = self.clock() + seconds

    def display_name(self, client: str) -> str:
        """Return the name of a client for people: the name of its registered key, or its id."""
        return self.display_names.get(client, client)

    def send(self, messages: list[tuple[OutstandingMessage, RecordDict]]) -> list[OutstandingMessage]:
        """Send messages and return those that Flower did not accept."""
        rejected = []
        for start in range(0, len(messages), MAX_PUSHED):
            batch = messages[start : start + MAX_PUSHED]
            for (message, _), identifier in zip(batch, self._push(batch), strict=True):
                if identifier:
                    self.outstanding[identifier] = message
                else:
                    rejected.append(message)
        return rejected

    def _push(self, messages: list[tuple[OutstandingMessage, RecordDict]]) -> list[str | None]:
        """Push messages in one request and return their ids; None for a message that Flower did not accept."""
        outgoing = []
        for message, content in messages:
            kind = MessageType.EVALUATE if message.kind == "evaluate" else MessageType.TRAIN
            outgoing.append(Message(content, message.node, kind, ttl=self.message_ttl, group_id=str(message.round)))
        with self._calling_flower("accept a message"):
            identifiers: list[str | None] = list(self.grid.push_messages(outgoing))
        if len(identifiers) == len(messages):
            return identifiers
        if len(messages) == 1:
            return [None]
        return [identifier for message in messages for identifier in self._push([message])]  # too large together

    def receive(self) -> Iterator[list[tuple[OutstandingMessage, Message]]]:
        """Yield the replies that have arrived in batches, each with the message that it answers."""
        batch = 1 if self.one_at_a_time else max(1, MAX_PULLED_BYTES // max(1, self.upload_bytes))
        waiting = list(self.outstanding)
        for start in range(0, len(waiting), batch):
            pairs = []
            for reply in self._pull(waiting[start : start + batch]):
                message = self.outstanding.pop(reply.metadata.reply_to_message_id, None)
                if message is not None:
                    pairs.append((message, reply))
            if pairs:
                yield pairs

    def drop(self, kind: str) -> None:
        """Stop waiting for replies to messages of a kind."""
        self.outstanding = {key: message for key, message in self.outstanding.items() if message.kind != kind}

    def drop_expired(self) -> list[OutstandingMessage]:
        """Stop waiting for messages that are older than `message_ttl`, and return them."""
        now = self.clock()
        expired = {key: message for key, message in self.outstanding.items() if now - message.sent > self.message_ttl}
        for key in expired:
            del self.outstanding[key]
        return list(expired.values())

    def _pull(self, identifiers: list[str]) -> list[Message]:
        """Return the replies to some messages.

        If Flower cannot read one of them, the whole batch is lost; from then on replies are fetched one at a time.
        """
        try:
            with self._calling_flower("return replies"):
                return list(self.grid.pull_messages(identifiers))
        except DeploymentError as error:
            if not isinstance(error.__cause__, UNREADABLE):
                raise
            clients = ", ".join(sorted({self.display_name(self.outstanding[key].client) for key in identifiers}))
            log.warning("fedlatest: refused a reply that Flower cannot read (from %s): %r", clients, error.__cause__)
            self.one_at_a_time = True
            return []

    @contextmanager
    def _calling_flower(self, what: str) -> Iterator[None]:
        """Count the time of a call to Flower and explain its failure; Flower has then retried for some time."""
        began = self.clock()
        try:
            yield
        except Exception as error:
            raise DeploymentError(
                f"the SuperLink did not {what} ({type(error).__name__}: {error}); all closed rounds are saved, and a "
                "new run with the same job folder continues the job"
            ) from error
        finally:
            self.flower_seconds += self.clock() - began


def _client_of_key(node: NodeInfo) -> str:
    """Return the client id that follows from a registered key.

    A node without a registered name has no such id: it may have generated its key when it started.
    """
    return f"{KEY_PREFIX}{hashlib.sha256(node.public_key).hexdigest()[:16]}" if node.public_key and node.name else ""
