"""Workload M in other simulators, compared with ours: `python -m benchmarks.peers`.

    python -m benchmarks.peers                    all peers
    python -m benchmarks.peers --only "PyTorch loop"

Ours runs before and after each peer, on all cores (the case "M, CPU, all threads" of benchmarks.rounds). The ratio of a
peer is its median divided by the median of ours in these two turns, so both see the same machine.

Every peer runs in an environment of its own, made on first use under the folder `peers` of the cache folder
(FEDLATEST_CACHE) and kept. A peer that cannot be installed or run is listed with the reason. The programs are in
benchmarks/peer_programs.
"""

import argparse
import json
import os
import subprocess
import venv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import rounds
from benchmarks.machine import describe_machine
from fedlatest.paths import cache_folder

PROGRAMS = Path(__file__).parent / "peer_programs"
INSTALL_SECONDS, RUN_SECONDS = 600, 300
OURS, BLOCKS = "M, CPU, all threads", 4  # a case of benchmarks.rounds, and its blocks in a turn


class Peer(NamedTuple):
    """A simulator: the packages to install, our program for it, and the rounds to time."""

    packages: tuple[str, ...]
    program: str
    what: str
    rounds: int = 10


PEERS = {
    "NumPy loop": Peer(("numpy",), "numpy_loop.py", "FedLaAvg, a loop over clients", rounds=20),
    "PyTorch loop": Peer(("torch==2.13.0", "numpy"), "pytorch_loop.py", "FedLaAvg, a loop over clients, 1 thread"),
    "pfl 0.6": Peer(("pfl==0.6.0", "torch==2.13.0"), "pfl_simulation.py", "FedAvg, simulated backend, 1 process"),
    "Flower's simulation": Peer(
        ("flwr[simulation]>=1.41,<2",), "flower_simulation.py", "FedAvg, Ray, one core per client", rounds=5
    ),
}


class PeerError(Exception):
    """A peer cannot be installed or run."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PEERS, help="one peer")
    parser.add_argument("--rounds", type=int, help="rounds to time (default: depends on the peer)")
    options = parser.parse_args()
    print(describe_machine(), "\n")
    print("| program | what | ms a round (median) | best | rounds | times as long as ours |\n|---|---|---|---|---|---|")
    with rounds.rounds_in_a_process(OURS, rounds.CASES[OURS]) as process:
        process.receive()
        ours = _blocks(process)
        for name, peer in PEERS.items():
            if options.only in (None, name):
                before = ours[-BLOCKS:]
                try:
                    times = measure(name, peer, options.rounds or peer.rounds)
                    ours += _blocks(process)
                    ratio = np.median(times) / np.median([*before, *ours[-BLOCKS:]])
                    cells = [peer.what, *_cells(times, digits=0), f"{ratio:.0f}"]
                except PeerError as error:
                    cells = [f"not measured: {error}", "", "", "", ""]
                print(f"| {name} | {' | '.join(cells)} |", flush=True)
    what = "FedLaAvg, one compiled program; blocks of 50 rounds"
    print(f"| fedlatest | {' | '.join([what, *_cells(ours, digits=1), '1'])} |")


def _blocks(process: rounds.Rounds) -> list[float]:
    """Return the milliseconds of a round of ours in each of `BLOCKS` blocks."""
    return [process.run_block()["milliseconds"] for _ in range(BLOCKS)]


def _cells(times: list[float], *, digits: int) -> list[str]:
    return [f"{np.median(times):.{digits}f}", f"{min(times):.{digits}f}", str(len(times))]


def measure(name: str, peer: Peer, rounds: int) -> list[float]:
    """Return the milliseconds of each round but the first.

    Raises:
        PeerError: If the peer cannot be installed or run.
    """
    python = environment_of(name, peer)
    command = [str(python), str(PROGRAMS / peer.program), str(rounds)]
    output = _run("run", command, RUN_SECONDS)
    return list(json.loads(output.splitlines()[-1]))


def environment_of(name: str, peer: Peer) -> Path:
    """Return the Python of the peer's environment, which is made if it does not exist or lacks a package.

    Raises:
        PeerError: If the packages cannot be installed.
    """
    folder = cache_folder() / "peers" / name.replace(" ", "-").replace("'", "")
    python, installed = folder / "bin" / "python", folder / "installed.json"
    if not installed.is_file() or json.loads(installed.read_text()) != list(peer.packages):
        venv.create(folder, clear=True, with_pip=True)
        _run("install", [str(python), "-m", "pip", "install", "--quiet", *peer.packages], INSTALL_SECONDS)
        installed.write_text(json.dumps(peer.packages))
    return python


def _run(step: str, command: list[str], seconds: int) -> str:
    """Return what a command prints; the environment's variables about Python are not passed on."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, env=environment)
    except subprocess.TimeoutExpired:
        raise PeerError(f"cannot {step} it within {seconds} s") from None
    if done.returncode:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise PeerError(f"cannot {step} it ({last[:200].replace('|', '/')})")
    return done.stdout


if __name__ == "__main__":
    main()
