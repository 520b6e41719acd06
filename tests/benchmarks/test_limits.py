"""The fused C programs compute what they claim: a few rounds of FedLaAvg, compared with NumPy in float64.

The programs write their data, their draws and their results; NumPy repeats the rounds from the data and the draws.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from benchmarks import limits, workloads

from tests.lstm_reference import gradient

pytestmark = pytest.mark.skipif(limits.compiler() is None, reason="there is no C compiler")

CLIENTS, COHORT, ROUNDS, STEPS = 12, 4, 5, 10  # every client of the logistic program takes part at least once
SIZES = (f"NUM_CLIENTS={CLIENTS}", f"COHORT={COHORT}")
GATES, HIDDEN = 64, 16
Floats = npt.NDArray[np.float64]


class Reader:
    """Reads the arrays of a file one after the other."""

    def __init__(self, path: Path) -> None:
        self.content, self.position = path.read_bytes(), 0

    def array(self, dtype: Any, *shape: int) -> Any:
        count = int(np.prod(shape))
        found = np.frombuffer(self.content, dtype, count, self.position).reshape(shape)
        self.position += found.nbytes
        return found


@pytest.mark.parametrize("threads", [1, 2])
def test_logistic_rounds_equal_numpy(tmp_path: Path, threads: int) -> None:
    """From a model of zeros, with 60 samples per client; in the fourth and fifth round clients take part again."""
    program = limits.build("logistic_round", *SIZES)
    run(program, threads, "--check", tmp_path / "out", ROUNDS)
    file = Reader(tmp_path / "out")
    samples, width = CLIENTS * 60, 784 * 10 + 16
    pixels = file.array(np.uint8, samples, 784) / 255
    labels = np.eye(10)[file.array(np.int32, samples)]
    draws = [file.array(np.int32, COHORT, STEPS, 5) for _ in range(ROUNDS)]
    weight, bias = np.zeros((10, 784)), np.zeros(10)
    remembered = np.zeros((CLIENTS, 7850))
    for round, rows in enumerate(draws):
        first = round % (CLIENTS // COHORT) * COHORT
        assert (rows // 60 == first + np.arange(COHORT)[:, None, None]).all()  # each client its own samples
        for slot in range(COHORT):
            local_weight, local_bias = weight.copy(), bias.copy()
            for batch in rows[slot]:
                logits = pixels[batch] @ local_weight.T + local_bias
                chances = np.exp(logits - logits.max(axis=1, keepdims=True))
                errors = chances / chances.sum(axis=1, keepdims=True) - labels[batch]
                local_weight -= 0.01 / 5 * errors.T @ pixels[batch]
                local_bias -= 0.01 / 5 * errors.sum(axis=0)
            update = np.concatenate([(local_weight - weight).ravel(), local_bias - bias])
            remembered[first + slot] = update
        mean = remembered.mean(axis=0)
        weight, bias = weight + mean[:7840].reshape(10, 784), bias + mean[7840:]
    model, updates = file.array(np.float32, width), file.array(np.float32, CLIENTS, width)
    assert file.position == len(file.content)
    np.testing.assert_allclose(model[:7850], np.concatenate([weight.ravel(), bias]), atol=2e-6)
    np.testing.assert_allclose(updates[:, :7850], remembered, atol=2e-6)
    assert np.abs(model).max() > 1e-3


@pytest.mark.parametrize("threads", [1, 2])
def test_lstm_rounds_equal_numpy(tmp_path: Path, threads: int) -> None:
    """Texts of 1 to 9 words, three per client. The order of gates is i, f, o, g in C, and i, f, g, o in NumPy."""
    lengths = np.random.default_rng(0).integers(1, 10, 3 * CLIENTS).astype(np.int32)
    lengths.tofile(tmp_path / "lengths")
    program = limits.build("lstm_round", *SIZES)
    run(program, threads, tmp_path / "lengths", "--check", tmp_path / "out", ROUNDS)
    file = Reader(tmp_path / "out")
    texts = [file.array(np.float32, int(length), 25) for length in lengths]
    labels = file.array(np.float32, lengths.size)
    size = (25 + 3 * HIDDEN + 2) * GATES + HIDDEN + 16
    model = file.array(np.float32, size).astype(np.float64)
    remembered = np.zeros((CLIENTS, size))
    for _ in range(ROUNDS):
        cohort, chosen = file.array(np.int32, COHORT), file.array(np.int32, COHORT, STEPS, 2)
        assert len(set(cohort.tolist())) == COHORT
        for slot, client in enumerate(cohort):
            local = model.copy()
            for batch in chosen[slot]:
                assert (batch // 3 == client).all()
                local -= 0.1 * flat_gradient(local, [texts[i] for i in batch], lengths[batch], labels[batch])
            remembered[client] = local - model
        model = model + remembered.mean(axis=0)
    found, updates = file.array(np.float32, size), file.array(np.float32, CLIENTS, size)
    assert file.position == len(file.content)
    np.testing.assert_allclose(found, model, atol=3e-6)
    np.testing.assert_allclose(updates, remembered, atol=3e-6)
    assert np.abs(remembered).max() > 1e-2


def flat_gradient(flat: Floats, texts: list[Any], lengths: Any, labels: Any) -> Floats:
    """Return the reference's gradient in the program's layout."""
    shapes = [(25, GATES), (HIDDEN, GATES), (GATES,), (HIDDEN, GATES), (HIDDEN, GATES), (GATES,), (HIDDEN,), (16,)]
    ends = np.cumsum([np.prod(shape) for shape in shapes])
    parts = [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]
    zeros = np.zeros(GATES)
    params = {
        "lower": layer(parts[0], parts[1], parts[2], zeros),
        "upper": layer(parts[3], parts[4], parts[5], zeros),
        "output": {"weight": parts[6][None], "bias": parts[7][:1]},
    }
    found = gradient(params, texts, lengths, labels)
    own = [
        *(swapped(found[name][part]) for name in ("lower", "upper") for part in ("input", "hidden", "input_bias")),
        found["output"]["weight"][0],
        np.r_[found["output"]["bias"], np.zeros(15)],
    ]
    return np.concatenate([part.ravel() for part in own])


def layer(weight: Floats, hidden: Floats, bias: Floats, zeros: Floats) -> dict[str, Floats]:
    return {"input": swapped(weight), "hidden": swapped(hidden), "input_bias": swapped(bias), "hidden_bias": zeros}


def swapped(weights: Floats) -> Floats:
    """Exchange the last two of the four gates."""
    i, f, o, g = np.split(weights, 4, axis=-1)
    return np.concatenate([i, f, g, o], axis=-1)


def test_programs_print_their_times(tmp_path: Path) -> None:
    np.full(CLIENTS, 3, np.int32).tofile(tmp_path / "lengths")
    for name, arguments in (("logistic_round", ["2"]), ("lstm_round", [str(tmp_path / "lengths"), "2"])):
        found = limits.measure(limits.build(name, *SIZES), *arguments, threads=1)
        assert found["threads"] == 1
        assert 0 < found["best"] <= found["median"]
        assert found["cpu"] > 0


def test_a_text_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    np.full(CLIENTS, 65, np.int32).tofile(tmp_path / "lengths")
    done = run(limits.build("lstm_round", *SIZES), 1, tmp_path / "lengths", "1", check=False)
    assert done.returncode == 1
    assert "text 0 has 65 words; 1 .. 64 are supported" in done.stderr


def test_the_work_of_a_round_by_hand() -> None:
    """M: 5000 samples, 7840 weights, 4 operations each; 5000 rows of 784 bytes, 100 updates of 7850 floats, twice.

    S with texts of 10 words: 20,000 words; 73 x 64 weights, which take part in the forward and the weight products, and
    48 x 64, through which gradients of states pass, 2 operations each; 1632 for gates and cells.
    """
    images, texts = workloads.work_on_images(), workloads.work_on_texts(10.0)
    assert images == (5000 * 7840 * 4, 5000 * 784 + 2 * 100 * 4 * 7850)
    assert texts.flops == 20_000 * (2 * (2 * 73 * 64 + 48 * 64) + 1632)
    assert texts.bytes == 20_000 * 25 * 4 + 2 * 100 * 4 * (73 * 64 + 128 + 17)


def run(program: Path, threads: int, *arguments: Any, check: bool = True) -> Any:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [str(program), *map(str, arguments)]
    return subprocess.run(command, env=environment, check=check, capture_output=True, text=True)
