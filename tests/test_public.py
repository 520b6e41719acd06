"""The list of public names, pinned so that a change of it is deliberate."""

import subprocess
import sys

import fedlatest
from fedlatest import authoring


def test_public_names() -> None:
    assert sorted(fedlatest.__all__) == [
        "AccountSplit", "Algorithm", "Availability", "ClusterError", "ConfigError", "DataError", "DeploymentError",
        "DivergedError", "ExperimentSpec", "Federation", "FedlatestError", "Interval", "Loss", "MissingExtraError",
        "Model", "Partition", "Privacy", "ProcessError", "Progress", "Result", "RunFolder", "RunFolderError", "Samples",
        "Sentences", "TrainedModel", "TweetSet", "Words", "__version__", "alternating", "always", "amplified_fedavg",
        "bernoulli", "both", "by_client", "by_label", "cnn", "crop_flip", "dirichlet", "diurnal", "either", "fedadam",
        "fedau", "fedavg", "fedawe", "federation_from_partitioner", "fedlaavg", "fedprox", "fedsgd", "flexible",
        "generated_tweets", "iid", "interleaved_sine", "inverse_sqrt", "label_rates", "lifetime", "load_cifar10",
        "load_digits", "load_mnist", "load_model", "load_sentiment140", "logistic", "lstm", "markov", "mlp", "naive",
        "read_trace", "restrict", "scaffold", "sequential", "shift", "sigmoid_cross_entropy", "simulate",
        "simulate_together", "sine", "softmax_cross_entropy", "split_accounts", "staircase", "trace",
        "tweet_federation", "windows", "write_trace",
    ]  # fmt: skip
    for name in fedlatest.__all__:
        assert hasattr(fedlatest, name)


def test_every_error_is_a_fedlatest_error() -> None:
    for name in fedlatest.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(fedlatest, name), fedlatest.FedlatestError)


def test_run_folders_and_errors_are_imported_without_jax() -> None:
    """Names are looked up in the packages without JAX first."""
    code = "import sys, fedlatest; fedlatest.RunFolder, fedlatest.ConfigError; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


def test_names_for_authors_of_algorithms() -> None:
    assert sorted(authoring.__all__) == [
        "Algorithm", "ClientFacts", "ClientState", "Cohort", "Contribution", "Direction", "ModelOnly", "NEVER",
        "RoundFacts", "Sums", "UpdateUpload", "Weighting", "add", "age_weighted", "broadcast_model", "check_positive",
        "keep_model", "lowest_first", "make_server_step", "oldest_first", "refuse_update_weighting", "scale",
        "select_uniformly", "server_numbers", "server_settings", "subtract", "uniform", "weighted_direction", "where",
        "zeros_like",
    ]  # fmt: skip


def test_dir_lists_the_public_names() -> None:
    assert {*fedlatest.__all__, "authoring", "mifa", "simulation"} <= set(dir(fedlatest))
    for name in dir(fedlatest):
        assert hasattr(fedlatest, name)
