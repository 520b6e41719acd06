"""Runs on several devices or processes, as programs that tests start: python -m tests.simulation.device_runs NAME ...

JAX fixes the number of CPU devices when it is first used, so a test starts a process of its own for several of them.
"""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
NUM_CLIENTS, COHORT_SIZE = 7, 3  # multiples of neither 2 nor 4
OPTIONS: dict[str, Any] = {
    "rounds": 12, "cohort_size": COHORT_SIZE, "num_local_steps": 2, "batch_size": 3, "learning_rate": 0.2,
    "evaluate_every": 4, "seeds": (4, 9),
}  # fmt: skip


def start(*arguments: str, num_devices: int = 1) -> subprocess.Popen[str]:
    """Start a program of this file in a process with some CPU devices."""
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": str(num_devices), "NPROC": str(num_devices)}
    command = [sys.executable, "-m", "tests.simulation.device_runs", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a process and return what it printed; fail if it failed."""
    try:
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0, err[-3000:]
    return out


def algorithms(path: str, *names: str) -> None:
    """Save what some algorithms give after some rounds on one and on several devices, as arrays NAME/DEVICES/LEAF."""
    from fedlatest.algorithms import ALGORITHMS

    found = {}
    for name in names:
        some = name in ("fedlaavg", "fedawe")  # these on four devices and with scores, which takes longer to compile
        for devices in (1, 2, 4) if some else (1, 2):
            for leaf, value in rounds_of(ALGORITHMS[name](), devices, measure=some).items():
                found[f"{name}/{devices}/{leaf}"] = value
    np.savez(path, **found)


def rounds_of(
    algorithm: Any, devices: int, *, seeds: tuple[int, ...] = (4,), measure: bool = True, augmentation: Any = None
) -> dict[str, Any]:
    """Return cohorts, scores and the state after 6 rounds, by name; states as a checkpoint holds them."""
    from fedlatest.simulation import ExperimentSpec
    from fedlatest.simulation.sharded_engine import make_engine
    from fedlatest.trees import named_leaves
    from tests.problems import MODEL, coins, small_federation

    spec = ExperimentSpec(
        small_federation(NUM_CLIENTS, seed=1), MODEL, algorithm, coins([0.5] * NUM_CLIENTS), COHORT_SIZE,
        num_local_steps=2, batch_size=3, learning_rate=0.2, seeds=seeds, augmentation=augmentation,
    )  # fmt: skip
    engine = make_engine([spec], devices=devices, clients_at_once=1 if devices == 1 else None)
    states, record = engine.advance(engine.start(), 6)
    parts = engine.named_parts(states, slice(0, len(seeds)))
    return {
        **{f"state.{name}": _joined(part) for name, part in parts.items()},
        **named_leaves({"record": record._asdict(), "measured": engine.measure(states) if measure else None}),
    }


def _joined(parts: Any) -> Any:
    return np.concatenate([np.concatenate(list(part.blocks())).reshape(part.shape) for part in parts])


def trials(path: str) -> None:
    """Save what two trials that are batched in one program, as on an accelerator, give on one and on two devices."""
    from unittest import mock

    from fedlatest import fedlaavg

    with mock.patch("fedlatest.simulation.engine._side_by_side", return_value=True):
        found = {devices: rounds_of(fedlaavg(), devices, seeds=(4, 9)) for devices in (1, 2)}
    np.savez(path, **{f"{devices}/{name}": value for devices, run in found.items() for name, value in run.items()})


def augmented(path: str) -> None:
    """Save what training with samples that are halved at random gives on one and on two devices, and without."""
    import jax.numpy as jnp

    from fedlatest import fedlaavg

    def halve_some(features: Any, draws: Any) -> Any:
        return jnp.where((draws >> 31)[:, None] == 1, features / 2, features)

    found = {devices: rounds_of(fedlaavg(), devices, augmentation=halve_some) for devices in (1, 2)}
    found[0] = rounds_of(fedlaavg(), 1)
    np.savez(path, **{f"{devices}/{name}": value for devices, run in found.items() for name, value in run.items()})


def layout() -> None:
    """Print how many rows of client states and samples each of two devices holds, and of how many."""
    from fedlatest import fedlaavg
    from fedlatest.simulation import ExperimentSpec
    from fedlatest.simulation.sharded_engine import make_engine
    from tests.problems import MODEL, coins, small_federation

    federation = small_federation(NUM_CLIENTS, seed=1)
    spec = ExperimentSpec(federation, MODEL, fedlaavg(), coins([0.5] * NUM_CLIENTS), COHORT_SIZE)
    engine = make_engine([spec], devices=2)
    states, _ = engine.advance(engine.start(), 6)
    rows = states[0].clients.remembered["update"]["weight"]
    print(*(shard.data.shape[1] for shard in rows.addressable_shards), federation.num_clients)
    print(*(shard.data.shape[0] for shard in engine.data.labels.addressable_shards), len(federation.labels))
    print(*federation.sizes)


def fused() -> None:
    """Train for one local step without a kernel, on one and on two devices, compiled as users' programs are."""
    os.environ.pop("XLA_FLAGS", None)  # `make test` sets flags that compile faster
    from fedlatest import Model, bernoulli, fedavg, simulate
    from tests.problems import MODEL, small_federation

    model = Model(MODEL.init, lambda params, features: features @ params["weight"].T + params["bias"])
    availability = bernoulli(np.full(NUM_CLIENTS, 0.5))
    options: dict[str, Any] = OPTIONS | {"rounds": 1, "num_local_steps": 1, "seeds": (0,)}
    for devices in (1, 2):
        simulate(small_federation(NUM_CLIENTS, seed=1), model, fedavg(), availability, devices=devices, **options)
        print("trained on", devices)


def run(folder: str, devices: str, stop: str, resume: str) -> None:
    """Run an experiment into a folder; a `stop` other than 0 is the round after which a callback interrupts it."""
    from fedlatest import Progress, bernoulli, fedlaavg, simulate
    from tests.problems import MODEL, small_federation

    def on_progress(progress: Progress) -> None:
        if progress.round == int(stop) > 0:
            raise KeyboardInterrupt

    federation = small_federation(NUM_CLIENTS, seed=1)
    federation = replace(federation, labels=federation.labels.astype(np.uint8))  # the kernels read int32
    try:
        result = simulate(
            federation, MODEL, fedlaavg(), bernoulli(np.full(NUM_CLIENTS, 0.5)),
            out=folder, devices=int(devices) or None, resume=resume == "resume", on_progress=on_progress, **OPTIONS,
        )  # fmt: skip
    except KeyboardInterrupt:
        print("interrupted")
        return
    print("final accuracy", result.metrics.column("test_accuracy")[:, -1].tolist())


def process(number: str, address: str, *arguments: str) -> None:
    """Run `run` as one of two processes; only the first may interrupt."""
    from fedlatest.simulation.processes import connect

    connect(address, 2, int(number))
    folder, devices, stop, resume = arguments
    run(folder if number == "0" else folder + "-unused", devices, stop if number == "0" else "0", resume)


def endless(number: str, address: str, folder: str = "") -> None:
    """Run for ever as one of two processes; print a line when the first block of rounds is done, and at a stop."""
    from fedlatest import FedlatestError, Progress, bernoulli, fedlaavg, simulate
    from fedlatest.simulation import processes
    from tests.problems import MODEL, small_federation

    last_round = 0

    def on_progress(progress: Progress) -> None:
        nonlocal last_round
        last_round = progress.round
        if progress.round == 4:
            print("training", flush=True)
        time.sleep(0.02)

    processes.connect(address, 2, int(number))
    try:
        simulate(
            small_federation(NUM_CLIENTS, seed=1), MODEL, fedlaavg(), bernoulli(np.full(NUM_CLIENTS, 0.5)),
            **(OPTIONS | {"rounds": 2**20}), out=folder or None, on_progress=on_progress,
        )  # fmt: skip
    except KeyboardInterrupt:
        print("stopped after round", last_round)
    except FedlatestError as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
