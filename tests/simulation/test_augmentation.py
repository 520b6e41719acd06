"""Augmentation: crops and flips against padding in NumPy, and draws that depend only on what they are keyed by."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest

from fedlatest import ConfigError, Federation, always, crop_flip, fedavg, iid, load_digits, logistic, simulate
from fedlatest.algorithms.base import ClientFacts, ClientState, ModelOnly
from fedlatest.data import generated_tweets
from fedlatest.experiments import RECIPES, FederationBuilder
from fedlatest.runs.run_folder import read_manifest
from fedlatest.simulation import ExperimentSpec, Progress
from fedlatest.simulation.device_data import put_on_device
from fedlatest.simulation.local_training import train_locally
from fedlatest.streams import Purpose, bits
from tests.problems import MODEL, small_federation

MEANS = {1: [0.1307], 3: [0.4914, 0.4822, 0.4465]}


def slow_crop_flip(image: npt.NDArray[np.float32], draw: int, padding: int) -> npt.NDArray[np.float32]:
    """Pad with the mean colour, crop and flip one image; the low 16 bits give the row, 15 the column, 1 the flip."""
    side, _, channels = image.shape
    padded = np.empty((side + 2 * padding, side + 2 * padding, channels), np.float32)
    padded[:] = MEANS[channels]
    padded[padding : padding + side, padding : padding + side] = image
    row = (draw % 2**16) * (2 * padding + 1) // 2**16
    column = (draw // 2**16 % 2**15) * (2 * padding + 1) // 2**15
    cropped = padded[row : row + side, column : column + side]
    return cropped[:, ::-1] if draw >= 2**31 else cropped


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("padding", [0, 1, 4])
def test_crops_and_flips_against_padding(channels: int, padding: int) -> None:
    images = np.random.default_rng(0).uniform(size=(40, 8, 8, channels)).astype(np.float32)
    draws = bits(3, Purpose.AUGMENTATION, jnp.arange(40))
    expected = np.stack([slow_crop_flip(image, int(draw), padding) for image, draw in zip(images, draws, strict=True)])
    augment = crop_flip(padding=padding)
    assert np.array_equal(augment(jnp.asarray(images), draws), expected)
    vectors = jnp.asarray(images.reshape(40, -1))
    assert np.array_equal(augment(vectors, draws), expected.reshape(40, -1))


def test_shifts_and_flips_are_uniform_and_independent() -> None:
    """An image with its only pixel in the middle shows where it moved: each of 2 x 9 x 9 outcomes in 1/162 of 32,400
    draws, 200 times with a standard deviation of 14; 5 of them are allowed.
    """
    image = np.zeros((1, 19, 19, 1), np.float32)
    image[0, 9, 9], image[0, 9, 10] = 1, 0.5  # the second one is left of the first after a flip
    draws = bits(0, Purpose.AUGMENTATION, jnp.arange(32_400))
    moved = np.asarray(crop_flip()(jnp.broadcast_to(jnp.asarray(image), (32_400, 19, 19, 1)), draws))[..., 0]
    rows, columns = np.divmod(moved.reshape(len(moved), -1).argmax(axis=1), 19)
    flipped = moved[np.arange(len(moved)), rows, columns - 1] == 0.5
    outcomes = np.stack([rows - 5, columns - 5, flipped])
    counts = np.zeros((9, 9, 2), int)
    np.add.at(counts, tuple(outcomes), 1)
    assert abs(counts - 200).max() < 70


def halve_some(features: Any, draws: jax.Array) -> Any:
    """Half of the samples, drawn at random, are divided by 2."""
    return jnp.where((draws >> 31)[:, None] == 1, features / 2, features)


def test_draws_are_keyed_by_seed_client_round_step_and_position() -> None:
    """Two local steps by hand, with the bits of (seed, client id, round, step, position)."""
    federation = small_federation()
    data = put_on_device(federation)
    params = MODEL.init(jax.random.key(0))
    rows = jnp.array([[0, 1, 2], [2, 1, 0]])

    def loss(params: Any, features: jax.Array, labels: jax.Array) -> jax.Array:
        logits = MODEL.apply(params, features)
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - logits[jnp.arange(len(labels)), labels])

    facts = ClientFacts(
        round=jnp.int32(7), id=jnp.int32(4), weight=jnp.float32(1), num_steps=2, numbers={}, seed=jnp.uint32(5),
        learning_rate=jnp.float32(0.1), last_round=jnp.int32(-1), rate=None, brief={},
    )  # fmt: skip
    trained = train_locally(
        fedavg(weighting="none"), loss, data, ModelOnly(params), ClientState(), rows, facts, augmentation=halve_some
    )
    for step, batch in enumerate(rows):
        halved = [int(bits(5, Purpose.AUGMENTATION, 4, 7, step, position)) >= 2**31 for position in range(3)]
        features = data.features[batch] / jnp.where(jnp.array(halved), 2.0, 1.0)[:, None]
        gradient = jax.grad(loss)(params, features, data.labels[batch])
        params = jax.tree.map(lambda x, g: x - 0.1 * g, params, gradient)
    for found, expected in zip(jax.tree.leaves(trained), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def run(federation: Federation, **options: Any) -> Any:
    standard = {
        "rounds": 4, "cohort_size": 4, "num_local_steps": 2, "batch_size": 3, "evaluate_every": 2, "learning_rate": 0.1,
    }  # fmt: skip
    return simulate(
        federation,
        MODEL,
        fedavg(),
        always(federation.num_clients),
        **{"augmentation": halve_some, **standard, **options},
    )


def test_the_order_and_number_of_clients_at_once_do_not_matter() -> None:
    """Chunks of 2 change only rounding, and clients in another order with the same ids do the same."""
    federation = small_federation(4)
    together = run(federation)
    in_chunks = run(federation, clients_at_once=2)
    order = [2, 0, 3, 1]
    rows = [federation.order[federation.offsets[i] : federation.offsets[i + 1]] for i in order]
    reordered = replace(
        federation,
        order=np.concatenate(rows),
        offsets=np.concatenate([[0], np.cumsum([len(part) for part in rows])]),
        ids=np.array(order, np.int32),
    )
    for other in (in_chunks, run(reordered)):
        for found, expected in zip(jax.tree.leaves(other.params), jax.tree.leaves(together.params), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_resumed_run_gives_the_same_bits(tmp_path: Path) -> None:
    federation = small_federation(4)
    whole = run(federation, out=tmp_path / "whole")

    def stop(progress: Progress) -> None:
        if progress.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(federation, out=tmp_path / "parts", on_progress=stop)
    parts = run(federation, out=tmp_path / "parts", resume=True)
    for found, expected in zip(jax.tree.leaves(parts.params), jax.tree.leaves(whole.params), strict=True):
        assert np.array_equal(found, expected)
    assert "halve_some" in read_manifest(tmp_path / "whole")["config"]["augmentation"]


def test_only_training_samples_are_augmented() -> None:
    """Samples that training sees as zeros leave the weights unchanged, but the evaluation sees the real ones."""
    federation = small_federation(4)
    result = run(federation, augmentation=lambda features, draws: 0 * features)
    plain = run(federation, augmentation=None)
    losses = [run.metrics.column("train_loss")[0, 0] for run in (result, plain)]
    assert losses[0] == losses[1]
    initial = run(federation, augmentation=lambda features, draws: 0 * features, learning_rate=1e-30)
    assert np.array_equal(result.params["weight"], initial.params["weight"])
    assert not np.array_equal(result.params["weight"], plain.params["weight"])


def digits_spec(**changes: Any) -> ExperimentSpec:
    samples = load_digits()
    federation = samples.to_federation(iid(samples.labels, num_clients=4, seed=0))
    standard = {"model": logistic(num_features=64, num_classes=10), "augmentation": crop_flip()}
    return ExperimentSpec(
        federation=federation, algorithm=fedavg(), availability=always(4), cohort_size=2, **{**standard, **changes}
    )


def test_it_is_part_of_the_program_and_excludes_kernels() -> None:
    spec = digits_spec()
    assert spec.program().native_training is None
    assert spec.program() == digits_spec().program()
    assert spec.program() != digits_spec(augmentation=crop_flip(padding=1)).program()
    assert spec.program() != digits_spec(augmentation=None).program()
    assert spec.manifest()["config"]["augmentation"] == "crop_flip(padding=4)"
    assert "augmentation" not in digits_spec(augmentation=None).manifest()["config"]


@pytest.mark.parametrize(
    ("augmentation", "message"),
    [
        (lambda features, draws: features[:, :3], "shapes and types must be the same"),
        (lambda features, draws: features.astype(jnp.bfloat16), "shapes and types must be the same"),
    ],
)
def test_shapes_and_types_are_checked(augmentation: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        digits_spec(augmentation=augmentation)


def test_it_needs_images() -> None:
    features = jnp.zeros((2, 50))
    with pytest.raises(ConfigError, match=r"needs square grey or colour images; samples have shape \(50,\)"):
        crop_flip()(features, jnp.zeros(2, jnp.uint32))
    [experiment] = RECIPES["tweets"].experiments(["num_clients=20", "augmentation=crop_flip"])
    with pytest.raises(ConfigError, match=r"augmentation=crop_flip: needs square.*type Sentences"):
        experiment.spec(FederationBuilder(generated_tweets(30)))
    with pytest.raises(ConfigError, match="padding=-1"):
        crop_flip(padding=-1)


@pytest.mark.parametrize(("value", "description"), [("crop_flip", "crop_flip(padding=4)"), ("none", None)])
def test_the_key_of_a_recipe(value: str, description: str | None) -> None:
    [experiment] = RECIPES["mnist"].experiments(["num_clients=20", f"augmentation={value}"])
    config = experiment.spec(FederationBuilder(load_digits())).manifest()["config"]
    assert config.get("augmentation") == description
    assert config["recipe"]["augmentation"] == value
