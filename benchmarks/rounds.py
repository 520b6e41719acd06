"""Time and memory of a round in every setting of the project's goals, beside what the machine can do: `make bench`.

    python -m benchmarks.rounds                    all cases that this machine can run
    python -m benchmarks.rounds --only M           those whose name has this part, or these ("S, CPU")
    python -m benchmarks.rounds --list             the names of the cases

Every case runs in its own process. Where there is a fused C program for the same workload (benchmarks/limits), the two
take turns, a block of rounds each, so that both see the same machine; their ratio is given in wall time and in CPU
time, which depends less on other processes. "1 thread" is pinned to one core. The roofline is the larger of two times:
the arithmetic of a round at the measured peak of the cores, and its memory traffic at the measured bandwidth. GPU cases
run where JAX's default backend is a GPU. Without evaluation, and without the first block, which compiles.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks import limits, workloads
from benchmarks.machine import describe_machine, num_cores, use_one_core
from benchmarks.workloads import Work

if TYPE_CHECKING:
    from fedlatest.simulation import ExperimentSpec

MILLION = 1_000_000
ROUNDS = 1100  # more than any case runs
COLUMNS = (
    "case", "ms a round", "best", "limit, ms", "ours / limit", "in CPU time", "roofline", "share of it",
    "first block, s", "GiB",
)  # fmt: skip


class Limit(NamedTuple):
    """A fused C program that does the same round."""

    program: str
    arguments: Callable[[], list[str]] = list
    defines: tuple[str, ...] = ()


class Case(NamedTuple):
    """A row of the table."""

    specs: "Callable[[], list[ExperimentSpec]]"
    block: int = 50  # rounds per block
    repeats: int = 6
    one_thread: bool = False
    gpu: bool = False
    divided: bool = False  # among as many CPU devices as there are cores
    limit: Limit | None = None
    work: Callable[[], Work] | None = None


def image_spec(
    *,
    num_clients: int = 1000,
    samples: int = 60,
    algorithm: str = "fedlaavg",
    model: str = "logistic",
    hidden: int = 64,
    cohort_size: int = workloads.COHORT,
    num_local_steps: int = workloads.STEPS,
    num_trials: int = 1,
) -> "list[ExperimentSpec]":
    """Workload M, or another model, number of clients or cohort size on the same kind of data."""
    from fedlatest import diurnal, logistic, mlp
    from fedlatest.algorithms import ALGORITHMS
    from fedlatest.simulation import ExperimentSpec

    sizes = {"num_features": workloads.PIXELS, "num_classes": workloads.CLASSES}
    models = {
        "logistic": lambda: logistic(**sizes),
        "mlp": lambda: mlp(**sizes, hidden=hidden),
        "cnn": workloads.convolutional,
    }
    spec = ExperimentSpec(
        workloads.images(num_clients, samples),
        models[model](),
        ALGORITHMS[algorithm](),
        diurnal(np.arange(num_clients) < num_clients // 10, period=100),
        cohort_size=cohort_size,
        num_local_steps=num_local_steps,
        batch_size=workloads.IMAGE_BATCH,
        learning_rate=workloads.IMAGE_RATE,
        rounds=ROUNDS,
        seeds=range(num_trials),
    )
    return [spec]


def large_spec() -> "list[ExperimentSpec]":
    """A model of 10.0 million parameters, N=100, K=10."""
    return image_spec(model="mlp", hidden=12_600, num_clients=100, cohort_size=10)


def text_spec(
    *, num_clients: int = 1000, texts: int = workloads.TEXTS_PER_CLIENT, num_trials: int = 1
) -> "list[ExperimentSpec]":
    """Workload S."""
    from fedlatest import always, fedlaavg, lstm
    from fedlatest.models import sigmoid_cross_entropy
    from fedlatest.simulation import ExperimentSpec

    spec = ExperimentSpec(
        workloads.texts(num_clients, texts),
        lstm(num_features=workloads.WORD_SIZE, hidden=workloads.HIDDEN),
        fedlaavg(),
        always(num_clients),
        cohort_size=workloads.COHORT,
        num_local_steps=workloads.STEPS,
        batch_size=workloads.TEXT_BATCH,
        learning_rate=workloads.TEXT_RATE,
        loss=sigmoid_cross_entropy,
        rounds=ROUNDS,
        seeds=range(num_trials),
    )
    return [spec]


def text_work() -> Work:
    """The work of a round of S with the lengths of the generated texts."""
    return workloads.work_on_texts(float(_lengths().mean()))


def _lengths() -> Any:
    return workloads.text_lengths(1000 * workloads.TEXTS_PER_CLIENT)


def _lengths_file() -> list[str]:
    path = limits.build("lstm_round").with_suffix(".lengths")
    _lengths().tofile(path)
    return [str(path)]


M_LIMIT = Limit("logistic_round")
S_LIMIT = Limit("lstm_round", _lengths_file)

CASES: dict[str, Case] = {
    "M, CPU, 1 thread": Case(image_spec, one_thread=True, limit=M_LIMIT, work=workloads.work_on_images),
    "M, CPU, all threads": Case(image_spec, limit=M_LIMIT, work=workloads.work_on_images),
    "S, CPU, 1 thread": Case(text_spec, block=20, one_thread=True, limit=S_LIMIT, work=text_work),
    "S, CPU, all threads": Case(text_spec, block=20, limit=S_LIMIT, work=text_work),
    "MLP, CPU, 1 thread": Case(lambda: image_spec(model="mlp", hidden=200), block=2, repeats=4, one_thread=True),
    "MLP, CPU, all threads": Case(lambda: image_spec(model="mlp", hidden=200), block=2, repeats=4),
    "CNN, CPU, 1 thread": Case(lambda: image_spec(model="cnn", cohort_size=20), block=1, repeats=4, one_thread=True),
    "CNN, CPU, all threads": Case(lambda: image_spec(model="cnn", cohort_size=20), block=1, repeats=4),
    "CNN, CPU, one device per core": Case(
        lambda: image_spec(model="cnn", cohort_size=20), block=1, repeats=4, divided=True
    ),
    "M, CPU, N=1,000,000": Case(lambda: image_spec(num_clients=MILLION, samples=1), block=20, repeats=4),
    "M with FedAvg, CPU, N=1,000,000": Case(
        lambda: image_spec(num_clients=MILLION, samples=1, algorithm="fedavg"), block=20, repeats=4
    ),
    "10 million parameters, CPU, N=100, K=10": Case(large_spec, block=1, repeats=1),
    "M, GPU": Case(image_spec, gpu=True, repeats=20, work=workloads.work_on_images),
    "M, GPU, N=1,000,000": Case(lambda: image_spec(num_clients=MILLION, samples=1), gpu=True, repeats=20),
    "M, GPU, 9 trials": Case(lambda: image_spec(num_trials=9), gpu=True, repeats=10),
    "S, GPU": Case(text_spec, block=20, gpu=True, repeats=10, work=text_work),
    "S, GPU, N=1,000,000": Case(lambda: text_spec(num_clients=MILLION, texts=2), block=20, gpu=True, repeats=10),
    "S, GPU, 9 trials": Case(lambda: text_spec(num_trials=9), block=20, gpu=True, repeats=10),
    "10 million parameters, GPU, N=100, K=10": Case(large_spec, block=5, gpu=True, repeats=4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PARTS", help="cases whose name has these parts, separated by commas")
    parser.add_argument("--repeats", type=int, help="blocks of rounds to time (default: depends on the case)")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--serve", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(CASES[options.serve])
        return
    chosen = [name for name in CASES if has_parts(name, options.only or "")]
    if not chosen:
        parser.error(f"--only {options.only}: no case has these parts; see --list")
    if options.list:
        print("\n".join(chosen))
        return
    print(describe_machine(), "\n")
    on_gpu = _default_backend() == "gpu"
    if any(CASES[name].limit for name in chosen) and limits.compiler():
        print_limits()
    elif not limits.compiler():
        print("There is no C compiler (cc, or the environment variable CC): no limits and no roofline.\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for name in chosen:
        case = CASES[name]
        if case.gpu and not on_gpu:
            print(_row(name, "not measured: JAX's default backend is not a GPU"), flush=True)
        else:
            print(_row(name, *measure(name, case, options.repeats or case.repeats)), flush=True)


def print_limits() -> None:
    """Print what the fused C programs and the machine reach with one thread and with all cores."""
    programs = {
        "fused C, M, each client its own samples": M_LIMIT,
        "fused C, M, samples of any client": M_LIMIT._replace(defines=("ANY_SAMPLES",)),
        "fused C, S": S_LIMIT,
    }
    print(f"| limit | 1 thread | {num_cores()} threads |\n|---|---|---|")
    for name, limit in programs.items():
        program, arguments = limits.build(limit.program, *limit.defines), [*limit.arguments(), "6"]
        cells = [limits.measure(program, *arguments, threads=threads) for threads in (1, num_cores())]
        print(f"| {name} |", " | ".join(f"{_number(cell['median'])} ms" for cell in cells), "|", flush=True)
    peaks = [limits.peak(threads) for threads in (1, num_cores())]
    print("| multiply-adds |", " | ".join(f"{peak.gflops:.0f} GFLOP/s" for peak in peaks), "|")
    print("| reading memory |", " | ".join(f"{peak.gigabytes:.1f} GB/s" for peak in peaks), "|\n", flush=True)


def has_parts(name: str, parts: str) -> bool:
    """Return whether all comma-separated parts are parts of the name of a case.

    >>> has_parts("M, CPU, N=1,000,000", "M"), has_parts("MLP, CPU, 1 thread", "M"), has_parts("S, GPU", "GPU, S")
    (True, False, True)
    """
    own = {part.strip() for part in name.split(", ")}
    return all(part.strip() in own for part in parts.split(", ") if part)


def measure(name: str, case: Case, repeats: int) -> list[str]:
    """Run a case and its limit, in turns, and return the cells of its row."""
    threads = 1 if case.one_thread else num_cores()
    reference: list[dict[str, float]] = []
    with rounds_in_a_process(name, case) as process:
        first = process.receive()
        if "refused" in first:
            return [f"refused: {first['refused']}"]
        program = limits.build(case.limit.program, *case.limit.defines) if case.limit and limits.compiler() else None
        arguments = [*case.limit.arguments(), "2"] if case.limit and program else []
        blocks = []
        for _ in range(repeats):
            blocks.append(process.run_block())
            if program:
                reference.append(limits.measure(program, *arguments, threads=threads))
    ours, memory = [block["milliseconds"] for block in blocks], blocks[-1]["gib"]
    median = float(np.median(ours))
    compared = ["", "", ""]
    if reference:
        limit, limit_cpu = (float(np.median([each[key] for each in reference])) for key in ("median", "cpu"))
        cpu = float(np.median([block["cpu"] for block in blocks]))
        compared = [_number(limit), f"{median / limit:.2f}", f"{cpu / limit_cpu:.2f}"]
    return [
        _number(median), _number(min(ours)), *compared, *_roofline(case, median, threads), f"{first['seconds']:.1f}",
        f"{memory:.2f}",
    ]  # fmt: skip


def _roofline(case: Case, milliseconds: float, threads: int) -> tuple[str, str]:
    """Return the time that the tighter of the machine's two bounds allows, and which share of that speed is reached."""
    if case.work is None or case.gpu or not limits.compiler():
        return "", ""
    work, peak = case.work(), limits.peak(threads)
    bounds = {"flops": work.flops / peak.gflops * 1e-6, "memory": work.bytes / peak.gigabytes * 1e-6}
    bound = max(bounds, key=lambda kind: bounds[kind])
    return f"{_number(bounds[bound])} ms ({bound})", f"{bounds[bound] / milliseconds:.0%}"


class Rounds(NamedTuple):
    """A process that runs a block of rounds whenever it is asked to."""

    process: "subprocess.Popen[str]"

    def run_block(self) -> dict[str, Any]:
        """Let the process run a block, while this one waits, and return what it reports."""
        assert self.process.stdin is not None
        self.process.stdin.write("block\n")
        self.process.stdin.flush()
        return self.receive()

    def receive(self) -> dict[str, Any]:
        """Return the next message of the process."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a case ended with status {self.process.wait()}; its error is above")
        return dict(json.loads(line))


@contextmanager
def rounds_in_a_process(name: str, case: Case) -> Iterator[Rounds]:
    """Start the process of a case, and end it."""
    command = [sys.executable, "-m", "benchmarks.rounds", "--serve", name]
    environment = dict(os.environ)
    if not case.gpu:
        environment["JAX_PLATFORMS"] = "cpu"
    if case.one_thread:
        environment["NPROC"] = "1"
    if case.divided:
        environment["NPROC"] = environment["JAX_NUM_CPU_DEVICES"] = str(num_cores())
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield Rounds(process)
    finally:
        process.kill()
        process.communicate()


def serve(case: Case) -> None:
    """Build an engine, then run a block of rounds for every line of the input; report as lines of JSON."""
    if case.one_thread:
        use_one_core()
    from fedlatest import ConfigError
    from fedlatest.simulation.sharded_engine import make_engine

    try:
        engine = make_engine(case.specs(), devices=num_cores() if case.divided else None)
        engine.check_memory()
    except ConfigError as error:
        _send({"refused": str(error)})
        return
    states = engine.start()
    begun = time.perf_counter()
    states, _ = engine.advance(states, case.block)
    _send({"seconds": time.perf_counter() - begun})
    for _ in sys.stdin:
        begun, cpu_begun = time.perf_counter(), time.process_time()
        states, _ = engine.advance(states, case.block)
        seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu_begun
        per_round = 1e3 / case.block
        _send({"milliseconds": seconds * per_round, "cpu": cpu_seconds * per_round, "gib": peak_gib()})


def peak_gib() -> float:
    """Return the largest amount of memory that this process has had, in GiB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _send(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def _default_backend() -> str:
    command = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _row(name: str, *cells: str) -> str:
    filled: Sequence[str] = [*cells, *[""] * (len(COLUMNS) - 1 - len(cells))]
    return f"| {' | '.join([name, *filled])} |"


if __name__ == "__main__":
    main()
