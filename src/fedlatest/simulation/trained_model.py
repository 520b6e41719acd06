"""The final model of a run, in one call."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedlatest.data.features import Sentences, Words, look_up
from fedlatest.errors import ConfigError, RunFolderError
from fedlatest.models import MODELS, Model
from fedlatest.runs.array_files import load_arrays
from fedlatest.runs.run_folder import read_manifest
from fedlatest.trees import from_named_leaves


class TrainedModel(NamedTuple):
    """A trained model: parameters, and what to do with them."""

    model: Model
    params: Any

    def outputs(self, features: Any, *, table: npt.ArrayLike | None = None) -> jax.Array:
        """The model's outputs (logits), one or a row of them per sample.

        Texts are `Sentences`, or `Words` with the `table` of the federation that they are of.
        """
        if isinstance(features, Words):
            if table is None:
                raise ConfigError("table: texts as numbers of words need theirs, federation.table")
            features = look_up(features, np.asarray(table))
        texts = isinstance(features, Sentences)
        return self.model.apply(self.params, features if texts else jnp.asarray(np.asarray(features)))

    def predict(self, features: Any, *, table: npt.ArrayLike | None = None) -> npt.NDArray[np.int64]:
        """The most likely label of each sample; of a single logit, whether it is above 0."""
        outputs = np.asarray(self.outputs(features, table=table))
        return outputs.argmax(axis=-1) if outputs.ndim > 1 else (outputs > 0).astype(np.int64)


def load_model(folder: Path | str, *, seed: int | None = None, model: Model | None = None) -> TrainedModel:
    """Load the final model of a run folder; of its first seed unless another is named.

    A run of your own model needs that model again: its functions are not stored.
    """
    path = Path(folder)
    manifest = read_manifest(path)
    if manifest["status"] != "finished":
        raise RunFolderError(f"{path}: the run is not finished; continue it with --resume")
    if model is None:
        settings = dict(manifest["config"].get("model") or {})
        if settings.get("name") not in MODELS:
            raise RunFolderError(f"{path}: was trained with a model of your own; pass it as load_model(..., model=...)")
        model = MODELS[settings.pop("name")](**settings)
    seeds = manifest["seeds"]
    chosen = seeds[0] if seed is None else seed
    if chosen not in seeds:
        raise RunFolderError(f"{path}: seed={chosen} was not run; it holds {', '.join(map(str, seeds))}")
    like = jax.eval_shape(model.init, jax.random.key(0))
    stacked = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((len(seeds), *leaf.shape), leaf.dtype), like)
    file = path / "model.safetensors"
    params = from_named_leaves(load_arrays(file)[0], stacked, source=file)
    return TrainedModel(model, jax.tree.map(lambda leaf: leaf[seeds.index(chosen)], params))
