"""Models as (init, apply) pairs, and losses."""

from fedlatest.models.base import Model
from fedlatest.models.linear import logistic
from fedlatest.models.losses import Loss, softmax_cross_entropy
from fedlatest.models.mlp import mlp

MODELS = {factory.__name__: factory for factory in (logistic, mlp)}

__all__ = ["MODELS", "Loss", "Model", "logistic", "mlp", "softmax_cross_entropy"]
