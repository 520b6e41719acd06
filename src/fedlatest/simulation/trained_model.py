"""`load_model`: read the final model of a run folder, and use it for predictions."""

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
    """A model and its trained parameters.

    Args:
        model: The (init, apply) pair.
        params: The parameters of one seed.
    """

    model: Model
    params: Any

    def outputs(self, features: Any, *, table: npt.ArrayLike | None = None) -> jax.Array:
        """Return the outputs of the model (logits), one number or one row per sample.

        Args:
            features: Samples [samples, ...]; texts are `Sentences`, or `Words` together with a `table`.
            table: The word vectors of the federation that the `Words` belong to, `federation.table`.

        Raises:
            ConfigError: If the features are `Words` and there is no table.
        """
        if isinstance(features, Words):
            if table is None:
                raise ConfigError("table: missing; features that are Words need the word vectors federation.table")
            features = look_up(features, np.asarray(table))
        texts = isinstance(features, Sentences)
        return self.model.apply(self.params, features if texts else jnp.asarray(np.asarray(features)))

    def predict(self, features: Any, *, table: npt.ArrayLike | None = None) -> npt.NDArray[np.int64]:
        """Return the most likely label of each sample; for a model with one logit, 1 if it is above 0 and else 0.

        Args:
            features: Samples, as for `outputs`.
            table: Word vectors, as for `outputs`.

        Raises:
            ConfigError: If the features are `Words` and there is no table.
        """
        outputs = np.asarray(self.outputs(features, table=table))
        return outputs.argmax(axis=-1) if outputs.ndim > 1 else (outputs > 0).astype(np.int64)


def load_model(folder: Path | str, *, seed: int | None = None, model: Model | None = None) -> TrainedModel:
    """Return the final model of a run folder.

    Args:
        folder: The folder of a finished run.
        seed: The seed whose model is returned; by default the first seed of the run.
        model: The model that was trained, if it is not one of fedlatest's: its functions are not stored in the folder.

    Raises:
        RunFolderError: If the folder holds no finished run, the seed was not run, or the model is needed or does not
            fit the stored parameters.
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
