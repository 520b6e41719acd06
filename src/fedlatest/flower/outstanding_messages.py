"""What is under way on Flower's grid: who is here, which messages are out, and what came back."""

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from flwr.app import Message, MessageType, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from fedlatest.errors import DeploymentError

log = logging.getLogger("flwr")
KEY = "key-"  # what the name of a client begins with that is known by its registered key
UNREADABLE = (ValueError, KeyError, TypeError, IndexError)  # what a forged body makes Flower's reader raise
PULLED_AT_ONCE = 256 * 2**20  # bytes of uploads that are in memory at a time


class Call(NamedTuple):
    """A message that is out."""

    kind: Literal["hello", "train", "rebase", "evaluate"]
    node: int
    client: str
    round: int
    sent: float


@dataclass
class Switchboard:
    """Sends and fetches messages; knows nodes by their ids of the moment, clients by their lasting names."""

    grid: Grid
    patience: float  # seconds after which a message is given up
    upload_bytes: int
    clock: Callable[[], float] = time.monotonic
    clients: dict[int, str] = field(default_factory=dict)  # node id -> client
    names: dict[str, str] = field(default_factory=dict)  # client -> what people call it
    online: set[int] = field(default_factory=set)
    out: dict[str, Call] = field(default_factory=dict)  # message id -> call
    seconds: float = 0.0  # spent waiting for Flower
    careful: bool = False  # fetch replies one by one: one was unreadable, and took others with it
    snubbed: dict[int, float] = field(default_factory=dict)  # node id -> when it may be greeted again

    def roll_call(self) -> list[tuple[int, str]]:
        """Look who is online; the nodes that have not said yet who they are, with what their key says."""
        with self._flower("say who is online"):
            nodes = list(self.grid.get_nodes())
        self.online = {node.node_id for node in nodes}
        asked = {call.node for call in self.out.values() if call.kind == "hello"}
        unknown = []
        for node in nodes:
            key = _identity(node)
            if key:
                self.names[key] = node.name
            snubbed = self.clock() < self.snubbed.get(node.node_id, 0.0)
            if node.node_id not in self.clients and node.node_id not in asked and not snubbed:
                unknown.append((node.node_id, key))
        return unknown

    def here(self) -> dict[str, int]:
        """Clients whose node is online, each with its node; of two nodes of one client, the one met last."""
        return {client: node for node, client in self.clients.items() if node in self.online}

    def busy(self) -> set[str]:
        """Clients that have not answered yet."""
        return {call.client for call in self.out.values() if call.client}

    def at_work(self, round: int) -> list[Call]:
        """What nodes that are online were asked in a round and have not answered; who has gone is not waited for."""
        asked = [call for call in self.out.values() if call.round == round and call.kind in ("train", "rebase")]
        return [call for call in asked if call.node in self.online]

    def meet(self, node: int, client: str) -> None:
        """A node has said who it is; what its client was asked at another node went with that node."""
        other = self.here().get(client, node)
        if other != node:
            log.warning(
                "fedlatest: %s is at two nodes, %s and %s; unless it was just restarted, two machines share its name "
                "or a copy of its state folder, and will undo each other's work", self.name(client), other, node,
            )  # fmt: skip
        self.out = {key: call for key, call in self.out.items() if call.client != client or call.node == node}
        self.clients.pop(node, None)  # of two nodes, the one met last counts
        self.clients[node] = client

    def forget(self, client: str) -> None:
        """Greet a client's nodes anew, should they come back."""
        self.clients = {node: known for node, known in self.clients.items() if known != client}

    def drop(self, kind: str) -> None:
        """Do not wait any longer for messages of a kind."""
        self.out = {key: call for key, call in self.out.items() if call.kind != kind}

    def snub(self, node: int, seconds: float) -> None:
        """Do not greet a node for a while: it could not say who it is."""
        self.snubbed[node] = self.clock() + seconds

    def name(self, client: str) -> str:
        """What people call a client."""
        return self.names.get(client, client)

    def send(self, calls: list[tuple[Call, RecordDict]]) -> list[Call]:
        """Send messages; those that Flower did not take are returned."""
        refused = []
        for call, content in calls:
            kind = MessageType.EVALUATE if call.kind == "evaluate" else MessageType.TRAIN
            message = Message(content, call.node, kind, ttl=self.patience, group_id=str(call.round))
            with self._flower("take a message"):
                [identifier] = list(self.grid.push_messages([message])) or [""]
            if identifier:
                self.out[identifier] = call
            else:
                refused.append(call)
        return refused

    def fetch(self) -> Iterator[tuple[Call, Message]]:
        """What has come back since the last time, a few messages at a time."""
        at_once = 1 if self.careful else max(1, PULLED_AT_ONCE // max(1, self.upload_bytes))
        waiting = list(self.out)
        for start in range(0, len(waiting), at_once):
            for message in self._pull(waiting[start : start + at_once]):
                call = self.out.pop(message.metadata.reply_to_message_id, None)
                if call is not None:
                    yield call, message

    def _pull(self, identifiers: list[str]) -> list[Message]:
        """The replies to some messages; one that Flower itself cannot read is lost, and others with it only once."""
        try:
            with self._flower("hand over replies"):
                return list(self.grid.pull_messages(identifiers))
        except DeploymentError as error:
            if not isinstance(error.__cause__, UNREADABLE):
                raise
            about = ", ".join(sorted({self.name(self.out[key].client) for key in identifiers}))
            log.warning("fedlatest: refused a reply that Flower cannot read (from %s): %r", about, error.__cause__)
            self.careful = True
            return []

    @contextmanager
    def _flower(self, what: str) -> Iterator[None]:
        """Flower tries again by itself for a while; when it gives up, so do we, in words that say what to do."""
        began = self.clock()
        try:
            yield
        except Exception as error:
            raise DeploymentError(
                f"the SuperLink did not {what} ({type(error).__name__}: {error}); every closed round is kept, and a "
                "new run with the same job folder goes on"
            ) from error
        finally:
            self.seconds += self.clock() - began

    def give_up(self) -> list[Call]:
        """Forget what has been out for too long; it will not come back any more."""
        late = {key: call for key, call in self.out.items() if self.clock() - call.sent > self.patience}
        for key in late:
            del self.out[key]
        return list(late.values())


def _identity(node: NodeInfo) -> str:
    """Who a node is by its key; nothing for a node without a name, which may have made its key up at its start."""
    return f"{KEY}{hashlib.sha256(node.public_key).hexdigest()[:16]}" if node.public_key and node.name else ""
