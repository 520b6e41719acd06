"""Models as (init, apply) pairs, and losses."""

from fedlatest.models.base import Model
from fedlatest.models.linear import logistic
from fedlatest.models.losses import Loss, sigmoid_cross_entropy, softmax_cross_entropy
from fedlatest.models.lstm import lstm
from fedlatest.models.mlp import mlp

MODELS = {factory.__name__: factory for factory in (logistic, lstm, mlp)}

__all__ = ["MODELS", "Loss", "Model", "logistic", "lstm", "mlp", "sigmoid_cross_entropy", "softmax_cross_entropy"]
