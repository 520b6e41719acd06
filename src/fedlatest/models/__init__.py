"""Models as (init, apply) pairs, and losses.

Holds the models of the paper, a convolutional network, the loss functions, and how kernels train the models. May import
`fedlatest.data`, `fedlatest.kernels` and `fedlatest.errors`.
"""

from fedlatest.models.base import Loss, Model, sigmoid_cross_entropy, softmax_cross_entropy
from fedlatest.models.cnn import cnn
from fedlatest.models.dense import logistic, mlp
from fedlatest.models.lstm import lstm

MODELS = {factory.__name__: factory for factory in (cnn, logistic, lstm, mlp)}

__all__ = [
    "MODELS",
    "Loss",
    "Model",
    "cnn",
    "logistic",
    "lstm",
    "mlp",
    "sigmoid_cross_entropy",
    "softmax_cross_entropy",
]
