"""The Algorithm interface: a frozen bundle of pure functions and declarations that both runtimes execute.

The simulator and the deployment own all bookkeeping: per-client rows, differences, sums, joining and leaving. An
algorithm only says what happens in one round, in this order:

    select       the server chooses the cohort from the available clients
    broadcast    what everyone in the cohort receives; `brief` adds values that differ per client
    start        where a client's local training starts
    direction    what a local step descends along
    contribute   what a client uploads, what stays remembered, and what it keeps for itself
    merge        how the server state changes, given the sums over the cohort
    after_merge  private state of the cohort after the merge

An asynchronous algorithm declares `buffer`. Its server merges after so many arrivals instead of once per round; clients
start at any time, with the model of that time. `select` is called for one client after the other: `cohort_size` is 1,
clients at work are not available, the round is the number of the dispatch (a moment at which clients start), and the
last rounds are the clients' last dispatches. `merge` sees as round the number of merges, as cohort the arrivals, and as
last rounds those of the models with which the remembered updates were computed, the arrivals included. Clients must not
read their own state in training.

Axes: [N, ...] all clients, [K, ...] the slots of a cohort. `Params` is any tree of arrays. `Parts` is a dict of named
trees; the names are the algorithm's own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

Params = Any
Parts = Mapping[str, Params]
Requirement = Literal["rates", "fixed_clients", "plain_sgd"]
NO_PARTS: Parts = {}
NEVER = -1  # `last_round` of a client that has not taken part yet


class ModelOnly(NamedTuple):
    """A server state or a broadcast that holds nothing but the model."""

    params: Params


class Cohort(NamedTuple):
    """The clients that take part: K distinct positions in range(N), of which those with a true mask are real."""

    clients: jax.Array  # [K]
    mask: jax.Array  # [K]


class RoundFacts(NamedTuple):
    """What the server knows in a round."""

    round: jax.Array
    seed: jax.Array
    num_clients: int
    cohort_size: int
    ids: jax.Array  # [N] stable client ids: random draws depend on these, not on positions
    last_round: jax.Array  # [N] R_i, the last round before this one in which a client took part, or NEVER
    numbers: Mapping[str, Any]  # the algorithm's own
    total_weight: Any  # of all clients: N in a simulation, where the mean weight is 1; the samples in a deployment
    learning_rate: Any = None  # of this round; None in a deployment, where clients choose it
    num_steps: Any = None  # None in a deployment
    rates: jax.Array | None = None  # [N] participation rates, where the user gives them
    available: jax.Array | None = None  # [N] in `brief` and `merge`; None in a deployment
    cohort: Cohort | None = None  # in `merge`


class ClientFacts(NamedTuple):
    """What one client knows in a round."""

    round: jax.Array
    id: jax.Array
    weight: jax.Array  # w_i N, 1 on average; in a deployment the number of samples
    num_steps: int
    numbers: Mapping[str, Any]  # the algorithm's own
    seed: Any = 0
    learning_rate: Any = 0.0  # of this round
    last_round: Any = NEVER  # the last round before this one in which it took part, or NEVER
    rate: Any = None  # its participation rate, where the user gives rates
    brief: Mapping[str, Any] = NO_PARTS  # its entries of what `brief` returned
    step: Any = 0  # index of the local step, in `direction`


class ClientState(NamedTuple):
    """What the runtime keeps for one client between the rounds in which it takes part."""

    remembered: Parts = NO_PARTS
    """Parts whose sum over all clients the server knows at any time."""
    private: Parts = NO_PARTS
    """Parts that only the client sees."""


class Contribution(NamedTuple):
    """The result of one client's local training."""

    fresh: Parts = NO_PARTS
    """Uploaded parts that count in this round only."""
    remembered: Parts = NO_PARTS
    """Uploaded parts that replace the client's previous ones and stay in the total while it is unavailable."""
    private: Parts = NO_PARTS
    """The client's new private state; may be left empty if it does not change."""


class Sums(NamedTuple):
    """Everything that the server learns from the uploads of a round."""

    fresh: Parts  # sum over the cohort
    delta: Parts  # remembered parts: sum of new - old over the cohort
    total: Parts  # remembered parts: sum of the latest ones of all clients, after this round
    num: jax.Array  # number of clients that took part
    weight: jax.Array  # sum of their weights
    discount: Any = None  # sum of the discounts of the arrivals; None in a synchronous round


@dataclass(frozen=True)
class Direction:
    """The direction of a local step: scale * gradient + pull * (local - start) + offset.

    A term that is None is absent (a scale of 1, no pull, no offset). Declaring the terms, instead of writing a
    function, lets one native kernel serve every algorithm and lets the deployment see that a method leaves local
    training alone.
    """

    scale: Callable[[ClientFacts], Any] | None = None
    """facts -> scalar; evaluated at every step, so it may depend on `facts.step`."""
    pull: Callable[[ClientFacts], Any] | None = None
    """facts -> scalar."""
    offset: Callable[[Any, ClientState, ClientFacts], Params] | None = None
    """(broadcast, client, facts) -> tree like the model; evaluated once before the first step."""

    @property
    def plain(self) -> bool:
        """Whether a step descends along the gradient itself."""
        return self.scale is None and self.pull is None and self.offset is None


@dataclass(frozen=True)
class UpdateUpload:
    """The plain `contribute`: a client uploads x_local - x as the part "update".

    A deployed client computes this rule without the algorithm and without JAX (`fedlatest.ledger`).

    Args:
        weighted: Multiply the update by the client's weight.
        remembered: Keep the update in the total while the client is unavailable; otherwise it counts once.
    """

    weighted: bool = False
    remembered: bool = False

    def __call__(self, broadcast: Any, local: Params, client: ClientState, facts: ClientFacts) -> Contribution:
        """Return the update of one client."""
        del client
        update = subtract(local, broadcast.params)
        return self.contribution(scale(update, facts.weight) if self.weighted else update)

    def contribution(self, update: Params) -> Contribution:
        """Return the contribution with an update."""
        parts = {"update": update}
        return Contribution(remembered=parts) if self.remembered else Contribution(fresh=parts)

    def init_client(self, params: Params) -> ClientState:
        """Return the state of a client before its first round: an update of zero."""
        return ClientState(remembered={"update": zeros_like(params)} if self.remembered else {})


InitServer = Callable[[Params, int], Any]
InitClient = Callable[[Params], ClientState]
Select = Callable[[Any, jax.Array, RoundFacts], Cohort]
Broadcast = Callable[[Any], Any]
Brief = Callable[[Any, RoundFacts], Mapping[str, jax.Array]]
Start = Callable[[Any, ClientState], Params]
DirectionFunction = Callable[[Params, Params, Params, Any, ClientState, ClientFacts], Params]
Contribute = Callable[[Any, Params, ClientState, ClientFacts], Contribution]
Merge = Callable[[Any, Sums, RoundFacts], Any]
AfterMerge = Callable[[Any, ClientState, ClientFacts], Parts]
Discount = Callable[[jax.Array, Mapping[str, Any]], Any]


def keep_model(params: Params, num_clients: int) -> ModelOnly:
    """`init_server` of algorithms whose server keeps nothing but the model."""
    del num_clients
    return ModelOnly(params)


def broadcast_model(server: Any) -> ModelOnly:
    """`broadcast` of algorithms whose clients receive nothing but the model."""
    return ModelOnly(server.params)


@dataclass(frozen=True)
class Algorithm:
    """A federated algorithm, for the simulator and for a deployment alike.

    Only `name`, `init_server`, `select`, `contribute` and `merge` are required. All functions are pure and traced by
    JAX; a number that they read from `facts.numbers` instead of capturing it is an argument of the compiled program,
    so that experiments that differ in it share one program.
    """

    name: str
    init_server: InitServer
    """(params, num_clients) -> server state: a NamedTuple of arrays with the model as `params`; may hold [N] arrays."""
    select: Select
    """(server, available [N], facts) -> cohort."""
    contribute: Contribute
    """(broadcast, local params, client, facts) -> contribution. An `UpdateUpload` can be deployed."""
    merge: Merge
    """(server, sums, facts) -> server state."""
    init_client: InitClient | None = None
    """(params) -> state of one client before its first round; default: that of an `UpdateUpload`, or nothing."""
    broadcast: Broadcast = broadcast_model
    """(server) -> what everyone in the cohort receives: a NamedTuple with the model as `params`."""
    brief: Brief | None = None
    """(server, facts) -> named [N] arrays of which each client in the cohort receives its own entries."""
    start: Start | None = None
    """(broadcast, client) -> where local training starts; default: `broadcast.params`."""
    direction: Direction | DirectionFunction = Direction()
    """The local step: a declared `Direction`, or any function
    (gradient, local, start, broadcast, client, facts) -> what the step descends along."""
    after_merge: AfterMerge | None = None
    """(broadcast after the merge, client, facts) -> new private state of a client of the cohort."""
    buffer: int | None = None
    """The number of arrivals after which an asynchronous algorithm merges; None for one with synchronous rounds."""
    discount: Discount | None = None
    """(staleness, numbers) -> factor of the fresh parts of an arrival whose client started `staleness` merges ago;
    default: 1. Of asynchronous algorithms only."""
    max_age: int | None = None
    """Of an asynchronous algorithm: remembered parts leave the total once their client started more than this many
    merges ago; by default they stay."""
    title: str = ""
    """The name for readers, in lists and plots; default: `name`."""
    paper: str = ""
    requires: tuple[Requirement, ...] = ()
    """What the caller must provide: "rates" (the clients' participation rates), "fixed_clients" (every client is
    known from the start and none ever leaves), "plain_sgd" (no client optimizer)."""
    num_local_steps: int | None = None
    """The number of local steps where the algorithm fixes it."""
    oldest_first: bool = False
    """Whether it selects the clients that were absent longest, for which Lemma 1 bounds the staleness."""
    pooled: bool = False
    """Train one client that has all data: a reference for comparison, not a federated algorithm."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The arguments of the factory, stored in the manifest."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """The settings that its functions read from `facts.numbers`."""

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)

    def client_state(self, params: Params) -> ClientState:
        """Return the state of one client before its first round.

        >>> from fedlatest import fedlaavg
        >>> fedlaavg().client_state(jnp.ones(2)).remembered["update"].tolist()
        [0.0, 0.0]
        """
        if self.init_client is not None:
            return self.init_client(params)
        if isinstance(self.contribute, UpdateUpload):
            return self.contribute.init_client(params)
        return ClientState()

    def obstacles_to_deployment(self) -> list[str]:
        """Return the reasons why a deployment cannot run this algorithm; an empty list if it can.

        A deployed client trains with the user's own function and uploads one update. An algorithm can therefore be
        deployed if its local step is plain, its upload is an `UpdateUpload`, clients receive the model alone and keep
        no private state, and clients may join and leave.

        >>> from fedlatest import fedprox
        >>> fedprox(weighting="none").obstacles_to_deployment()
        ['it changes the local steps (direction)']
        """
        changes_steps = not (isinstance(self.direction, Direction) and self.direction.plain)
        reasons = {
            "it changes the local steps (direction)": changes_steps,
            "it fixes the number of local steps": self.num_local_steps is not None,
            "it chooses where local training starts (start)": self.start is not None,
            "its upload is not an UpdateUpload (contribute)": not isinstance(self.contribute, UpdateUpload),
            "its clients keep a state of their own (init_client)": self.init_client is not None,
            "its clients act after the merge (after_merge)": self.after_merge is not None,
            "it broadcasts more than the model (broadcast)": self.broadcast is not broadcast_model,
            "it sends each client values of its own (brief)": self.brief is not None,
            "it needs a fixed set of clients": "fixed_clients" in self.requires,
            "its server keeps arrays per client (init_server)": self._server_depends_on_num_clients(),
            "it needs plain local SGD": "plain_sgd" in self.requires,
            "it needs the clients' participation rates": "rates" in self.requires,
            "it trains on pooled data": self.pooled,
            "it is asynchronous (buffer)": self.buffer is not None,
        }
        return [reason for reason, applies in reasons.items() if applies]

    def _server_depends_on_num_clients(self) -> bool:
        """Return whether the shapes of the server's state depend on the number of clients."""
        model = jax.ShapeDtypeStruct((1,), jnp.float32)
        few, many = (
            jax.eval_shape(lambda params, number=number: self.init_server(params, number), model) for number in (2, 3)
        )
        return [leaf.shape for leaf in jax.tree.leaves(few)] != [leaf.shape for leaf in jax.tree.leaves(many)]


def add(left: Params, right: Params, scale: jax.Array | float = 1.0) -> Params:
    """Return left + scale * right, leaf by leaf."""
    return jax.tree.map(lambda x, y: (x + scale * y).astype(x.dtype), left, right)


def subtract(left: Params, right: Params) -> Params:
    """Return left - right, leaf by leaf."""
    return jax.tree.map(lambda x, y: x - y, left, right)


def scale(tree: Params, factor: jax.Array | float) -> Params:
    """Return factor * tree, leaf by leaf."""
    return jax.tree.map(lambda x: factor * x, tree)


def where(condition: Any, new: Params, old: Params) -> Params:
    """Return `new` where a scalar condition holds and `old` otherwise, leaf by leaf."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), new, old)


def zeros_like(tree: Params) -> Params:
    """Return a tree of zeros."""
    return jax.tree.map(jnp.zeros_like, tree)
