"""Clients divided among devices: where rows and samples lie, and what the devices exchange in a round.

A mesh has one axis of D devices. Device d holds the rows of the states and the samples of clients d n .. (d + 1) n - 1,
where n = ceil(N / D). Everything else (server state, availability, last rounds) is replicated, so that selection and
merge need no communication. In a round every device trains each D-th slot of the cohort, whoever holds the client:

    take_part     the holders send rows and batches of samples to the devices that train them (all-to-all)
    (training)    each device trains its slots, as a single device trains a whole cohort
    return_part   everyone receives the new rows (all-gather) and each holder writes its own; sums are added up

Axes: [N] clients, [n] clients of a device, [K] slots of the cohort, [k] slots of a device, k = ceil(K / D).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedlatest.algorithms.base import ClientState, Cohort
from fedlatest.data import Federation
from fedlatest.errors import ConfigError
from fedlatest.simulation.device_data import DeviceData, compact, training_arrays
from fedlatest.simulation.processes import open_connections

AXIS = "clients"
REPLICATED, DIVIDED, DIVIDED_ROWS = PartitionSpec(), PartitionSpec(AXIS), PartitionSpec(None, AXIS)
DATA_SPECS: Any = DeviceData._make([DIVIDED] * 2 + [REPLICATED] * 5)

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class CohortPart:
    """What one device trains in a round; on a single device the whole cohort."""

    slots: Cohort
    """Positions in `clients`."""
    clients: ClientState
    """The rows that the slots refer to."""
    data: DeviceData
    """The samples that the batches refer to."""
    position: Callable[[jax.Array], jax.Array]
    """Position in `clients` -> position in the federation."""
    batches: Callable[[jax.Array], jax.Array]
    """Position in `clients` -> rows [steps, batch] of the samples."""


class TestSet(NamedTuple):
    """The test samples, divided among the devices; on each, those after the first `num_own_tests` are padding."""

    features: Any
    labels: jax.Array


def make_mesh(devices: int | None) -> Mesh | None:
    """Return a mesh of some devices of every process; None if it would hold a single device.

    Args:
        devices: How many devices of each process. By default one, or, if there are several processes, all of them.

    Raises:
        ConfigError: If there are fewer devices.
    """
    own = jax.local_devices()
    number = devices if devices is not None else len(own) if jax.process_count() > 1 else 1
    if not 1 <= number <= len(own):
        advice = (
            f"; start Python with JAX_NUM_CPU_DEVICES={number}, or call jax.config.update('jax_num_cpu_devices', "
            f"{number}) before JAX is used"
            if own[0].platform == "cpu" and number > 1
            else ""
        )
        raise ConfigError(f"devices={number}: JAX finds {len(own)} {own[0].platform} device(s){advice}")
    by_process: dict[int, list[Any]] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    chosen = [device for process in sorted(by_process) for device in by_process[process][:number]]
    if len(chosen) == 1:
        return None
    mesh = Mesh(np.array(chosen), (AXIS,))
    open_connections(mesh)
    return mesh


def on_each_device(function: Function, mesh: Mesh | None, *, in_specs: Any, out_specs: Any) -> Function:
    """Return the function as it runs on every device of a mesh; without a mesh it is returned as it is.

    Args:
        function: Takes and returns the parts of its device.
        mesh: The devices.
        in_specs: How the arguments are divided.
        out_specs: How the results are divided; replicated ones must be equal on all devices.
    """
    if mesh is None:
        return function
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def clients_per_device(num_clients: int, num_devices: int) -> int:
    """Return n, the number of rows on each device; the last devices may have rows to spare."""
    return -(-num_clients // num_devices)


def shard_data(federation: Federation, mesh: Mesh) -> tuple[DeviceData, TestSet]:
    """Return the training and the test samples divided among devices; each process copies only what its devices hold.

    The samples of a device are filled up with zeros to the length of the longest part. `starts` are positions within
    the part of the client's device.
    """
    each = clients_per_device(federation.num_clients, mesh.size)
    ends = np.minimum(np.arange(mesh.size + 1) * each, federation.num_clients)
    bounds = federation.offsets[ends]  # where the samples of each device begin in `order`
    parts = [federation.order[first:last] for first, last in pairwise(bounds)]
    tests = np.array_split(np.arange(len(federation.test_labels)), mesh.size)
    train = jax.tree.map(partial(_divide, parts=parts, mesh=mesh), training_arrays(federation))
    test = jax.tree.map(
        partial(_divide, parts=tests, mesh=mesh), (compact(federation.test_features), federation.test_labels)
    )
    owner = np.arange(federation.num_clients) // each
    rest = (
        (federation.offsets[:-1] - bounds[owner]).astype(np.int32),
        federation.sizes.astype(np.int32),
        federation.weights,
        federation.ids,
        federation.table,
    )
    return DeviceData(*train, *replicate(rest, mesh)), TestSet(*test)


def replicate(tree: Any, mesh: Mesh | None) -> Any:
    """Return arrays that all processes have as arrays on all devices; without a mesh they are returned as they are."""
    if mesh is None:
        return tree
    sharding = NamedSharding(mesh, REPLICATED)

    def place(leaf: Any) -> jax.Array:
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(place, tree)


def num_own_samples(data: DeviceData, num_devices: int) -> jax.Array:
    """Return how many of the training samples on this device are real."""
    each = clients_per_device(data.ids.shape[0], num_devices)
    owner = jnp.arange(data.ids.shape[0]) // each
    return jnp.sum(jnp.where(owner == lax.axis_index(AXIS), data.sizes, 0))


def num_own_tests(num_tests: int, num_devices: int) -> jax.Array:
    """Return how many of the test samples on this device are real; `np.array_split` divides them."""
    shorter, longer = divmod(num_tests, num_devices)
    return jnp.where(lax.axis_index(AXIS) < longer, shorter + 1, shorter)


def take_part(
    rows: ClientState,
    data: DeviceData,
    cohort: Cohort,
    draw: Callable[[jax.Array], jax.Array],
    *,
    num_devices: int,
) -> CohortPart:
    """Return the slots of the cohort that this device trains, with the rows and samples of their clients.

    Args:
        rows: [n, ...] the states of this device's clients.
        data: The samples of this device's clients.
        cohort: The whole cohort.
        draw: Position of a client -> rows [steps, batch] of its batches among the samples of its device.
        num_devices: D.
    """
    num_clients = data.ids.shape[0]
    each = clients_per_device(num_clients, num_devices)
    slots = _by_device(cohort, num_clients, num_devices)  # [D, k]
    me = lax.axis_index(AXIS)
    mine = jax.tree.map(lambda leaf: leaf[me], slots)
    batches = jax.vmap(jax.vmap(draw))(slots.clients)  # [D, k, steps, batch]
    shape, per_slot = batches.shape[2:], batches.shape[2] * batches.shape[3]
    local = jnp.clip(slots.clients - me * each, 0, each - 1)  # of clients that others hold, any row will do
    samples = jnp.reshape(batches, (*batches.shape[:2], per_slot))
    sent = jax.tree.map(lambda leaf: leaf[local], rows), jax.tree.map(lambda leaf: leaf[samples], tuple(data[:2]))
    owner, order = jnp.clip(mine.clients // each, 0, num_devices - 1), jnp.arange(mine.clients.shape[0])

    def receive(leaf: jax.Array) -> jax.Array:
        return lax.all_to_all(leaf, AXIS, 0, 0, tiled=True)[owner, order]

    own_rows, received = jax.tree.map(receive, sent)
    features, labels = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), received)
    return CohortPart(
        slots=Cohort(order, mine.mask),
        clients=own_rows,
        data=data._replace(features=features, labels=labels),
        position=lambda slot: mine.clients[slot],
        batches=lambda slot: slot * per_slot + jnp.arange(per_slot, dtype=jnp.int32).reshape(shape),
    )


def return_part(
    rows: ClientState, new: ClientState, cohort: Cohort, *, num_clients: int, num_devices: int
) -> ClientState:
    """Return the rows of this device's clients after those of the cohort were replaced.

    Args:
        rows: [n, ...] the states of this device's clients.
        new: [k, ...] the new states of the slots that this device has trained.
        cohort: The whole cohort.
        num_clients: N.
        num_devices: D.
    """
    slots = _by_device(cohort, num_clients, num_devices)
    held = held_here(jax.tree.map(jnp.ravel, slots), num_clients=num_clients, num_devices=num_devices)

    def write(leaf: jax.Array, part: jax.Array) -> jax.Array:
        return leaf.at[held.clients].set(lax.all_gather(part, AXIS, tiled=True), unique_indices=True)

    return jax.tree.map(write, rows, new)


def held_here(cohort: Cohort, *, num_clients: int, num_devices: int) -> Cohort:
    """Return the cohort as positions in this device's rows; clients that others hold are masked and out of range."""
    each, size = clients_per_device(num_clients, num_devices), cohort.clients.shape[0]
    local = cohort.clients - lax.axis_index(AXIS) * each
    held = (local >= 0) & (local < each)
    beyond = each + jnp.arange(size, dtype=local.dtype)  # distinct, and writes to them are dropped
    return Cohort(jnp.where(held, local, beyond), cohort.mask & held)


def in_slot_order(part: jax.Array, cohort_size: int) -> jax.Array:
    """Return the values [k] that each device has of its slots as the values [K] of all slots."""
    return lax.all_gather(part, AXIS).T.reshape(-1)[:cohort_size]


def sum_over_devices(tree: Any) -> Any:
    """Return the sums of the devices' arrays."""
    return lax.psum(tree, AXIS)


def mean_of_rows(tree: Any, *, num_clients: int) -> Any:
    """Return the mean over all clients of rows [n, ...]; the spare rows of the last devices do not count."""

    def mean(leaf: jax.Array) -> jax.Array:
        position = lax.axis_index(AXIS) * leaf.shape[0] + jnp.arange(leaf.shape[0])
        real = (position < num_clients).reshape(-1, *[1] * (leaf.ndim - 1))
        return lax.psum(jnp.sum(jnp.where(real, leaf, 0), axis=0), AXIS) / num_clients

    return jax.tree.map(mean, tree)


def _by_device(cohort: Cohort, num_clients: int, num_devices: int) -> Cohort:
    """Return the slots [D, k] of each device: every D-th, so that masked slots, which come last, are spread evenly."""
    size = cohort.clients.shape[0]
    spare = -size % num_devices
    beyond = num_devices * clients_per_device(num_clients, num_devices)
    clients = jnp.concatenate([cohort.clients, beyond + jnp.arange(spare, dtype=cohort.clients.dtype)])
    mask = jnp.concatenate([cohort.mask, jnp.zeros(spare, bool)])
    return jax.tree.map(lambda leaf: leaf.reshape(-1, num_devices).T, Cohort(clients, mask))


def _divide(leaf: Any, *, parts: list[Any], mesh: Mesh) -> jax.Array:
    """Return the rows `parts[d]` of an array on device d, filled up with zeros to equal lengths."""
    longest = max(len(part) for part in parts)

    def block(index: Any) -> np.ndarray[Any, Any]:
        own = parts[(index[0].start or 0) // longest]
        filled = np.zeros((longest, *leaf.shape[1:]), leaf.dtype)
        filled[: len(own)] = leaf[own]
        return filled

    shape = (longest * mesh.size, *leaf.shape[1:])
    return jax.make_array_from_callback(shape, NamedSharding(mesh, DIVIDED), block)
