"""Federated learning with clients that are not always available: a compiled simulator and a deployment on Flower.

The names in `__all__` are imported on first use, so that a deployed client and `fedlatest --help` start without JAX.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedlatest.version import __version__

if TYPE_CHECKING:
    from fedlatest.algorithms import (
        Algorithm,
        amplified_fedavg,
        fedadam,
        fedau,
        fedavg,
        fedawe,
        fedlaavg,
        fedprox,
        fedsgd,
        flexible,
        naive,
        scaffold,
        sequential,
    )
    from fedlatest.availability import (
        Availability,
        Interval,
        alternating,
        always,
        bernoulli,
        both,
        diurnal,
        either,
        interleaved_sine,
        label_rates,
        lifetime,
        markov,
        read_trace,
        restrict,
        shift,
        sine,
        staircase,
        trace,
        windows,
        write_trace,
    )
    from fedlatest.data import (
        AccountSplit,
        Federation,
        Partition,
        Samples,
        Sentences,
        TweetSet,
        Words,
        by_client,
        by_label,
        dirichlet,
        federation_from_partitioner,
        generated_tweets,
        iid,
        load_cifar10,
        load_digits,
        load_mnist,
        load_sentiment140,
        split_accounts,
        tweet_federation,
    )
    from fedlatest.errors import (
        ClusterError,
        ConfigError,
        DataError,
        DeploymentError,
        DivergedError,
        FedlatestError,
        MissingExtraError,
        ProcessError,
        RunFolderError,
    )
    from fedlatest.models import Loss, Model, cnn, logistic, lstm, mlp, sigmoid_cross_entropy, softmax_cross_entropy
    from fedlatest.privacy import Privacy
    from fedlatest.runs import RunFolder
    from fedlatest.simulation import (
        ExperimentSpec,
        Progress,
        Result,
        TrainedModel,
        crop_flip,
        inverse_sqrt,
        load_model,
        simulate,
        simulate_together,
    )

# In the order in which names are looked up: packages without JAX first.
_PACKAGES = (
    *("errors", "runs", "privacy", "data", "algorithms", "availability", "delays", "models", "simulation", "theory"),
)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES or name == "authoring":
        return import_module(f"fedlatest.{name}")
    for package in _PACKAGES if name in __all__ else ():
        found = getattr(import_module(f"fedlatest.{package}"), name, None)
        if found is not None:
            return found
    if not name.startswith("_"):  # an algorithm that is registered but not listed below
        from fedlatest.algorithms import ALGORITHMS, ASYNCHRONOUS

        if name in {**ALGORITHMS, **ASYNCHRONOUS}:
            return {**ALGORITHMS, **ASYNCHRONOUS}[name]
    raise AttributeError(f"module 'fedlatest' has no attribute {name!r}")


def __dir__() -> list[str]:
    from fedlatest.algorithms import ALGORITHMS, ASYNCHRONOUS

    return sorted({*__all__, *_PACKAGES, *ALGORITHMS, *ASYNCHRONOUS, "authoring"})


__all__ = [
    "AccountSplit",
    "Algorithm",
    "Availability",
    "ClusterError",
    "ConfigError",
    "DataError",
    "DeploymentError",
    "DivergedError",
    "ExperimentSpec",
    "Federation",
    "FedlatestError",
    "Interval",
    "Loss",
    "MissingExtraError",
    "Model",
    "Partition",
    "Privacy",
    "ProcessError",
    "Progress",
    "Result",
    "RunFolder",
    "RunFolderError",
    "Samples",
    "Sentences",
    "TrainedModel",
    "TweetSet",
    "Words",
    "__version__",
    "alternating",
    "always",
    "amplified_fedavg",
    "bernoulli",
    "both",
    "by_client",
    "by_label",
    "cnn",
    "crop_flip",
    "dirichlet",
    "diurnal",
    "either",
    "fedadam",
    "fedau",
    "fedavg",
    "fedawe",
    "federation_from_partitioner",
    "fedlaavg",
    "fedprox",
    "fedsgd",
    "flexible",
    "generated_tweets",
    "iid",
    "interleaved_sine",
    "inverse_sqrt",
    "label_rates",
    "lifetime",
    "load_cifar10",
    "load_digits",
    "load_mnist",
    "load_model",
    "load_sentiment140",
    "logistic",
    "lstm",
    "markov",
    "mlp",
    "naive",
    "read_trace",
    "restrict",
    "scaffold",
    "sequential",
    "shift",
    "sigmoid_cross_entropy",
    "simulate",
    "simulate_together",
    "sine",
    "softmax_cross_entropy",
    "split_accounts",
    "staircase",
    "trace",
    "tweet_federation",
    "windows",
    "write_trace",
]
