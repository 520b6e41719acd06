"""scikit-learn on Flower in one process: ten clients, of which two halves are available in turns.

On real nodes Flower starts the same client app (see `fedlatest deploy init`).
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.clientapp import ClientApp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import fedlatest
from fedlatest.flower import ClientResult, ClientTask, FedLaAvg, LocalGrid, Timeouts, client_app, from_record, to_record
from fedlatest.flower.client import Weights
from fedlatest.ledger import ClientStore, FolderStorage
from fedlatest.ledger.audit import audit

NUM_CLIENTS, ROUNDS = 10, 60
samples = fedlatest.load_digits()
federation = samples.to_federation(fedlatest.dirichlet(samples.labels, num_clients=NUM_CLIENTS, alpha=0.3, seed=0))
pattern = fedlatest.diurnal(np.arange(NUM_CLIENTS) % 2 == 0, period=10)


def train(model: Weights, features: np.ndarray, labels: np.ndarray) -> Weights:
    """Run two iterations of scikit-learn's solver from the given model."""
    classifier = LogisticRegression(max_iter=2, C=0.1, warm_start=True)
    classifier.classes_ = np.unique(labels)  # a client may not have examples of every digit
    classifier.coef_ = model["coef"][classifier.classes_]
    classifier.intercept_ = model["intercept"][classifier.classes_]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # two iterations are not meant to converge
        classifier.fit(features, labels)
    trained = {name: part.copy() for name, part in model.items()}
    trained["coef"][classifier.classes_] = classifier.coef_
    trained["intercept"][classifier.classes_] = classifier.intercept_
    return trained


def client(number: int) -> ClientApp:
    """Make the client app of one client."""
    rows = federation.order[federation.offsets[number] : federation.offsets[number + 1]]
    features, labels = federation.features[rows], federation.labels[rows]

    def fit(model: Weights, task: ClientTask) -> ClientResult:
        return ClientResult(len(labels), {}, train(model, features, labels))

    return client_app(fit, num_examples=lambda context: len(labels))


def set_online(round: int) -> None:
    """Take nodes offline and bring others online according to the availability model."""
    for node, online in zip(grid.nodes.values(), pattern.available(round, 0), strict=True):
        node.online = bool(online)


def evaluate(server_round: int, model: ArrayRecord) -> MetricRecord:
    """Return the accuracy on test examples, and set which nodes are online in the next round."""
    set_online(server_round)
    arrays = from_record(model)
    predictions = (samples.test_features @ arrays["coef"].T + arrays["intercept"]).argmax(axis=1)
    return MetricRecord({"accuracy": float((predictions == samples.test_labels).mean())})


with tempfile.TemporaryDirectory() as folder:
    job, grid = Path(folder) / "job", LocalGrid()
    states = [Path(folder) / f"node{number}" for number in range(NUM_CLIENTS)]
    for number, state in enumerate(states):
        grid.add(client(number), {"state-dir": str(state), "name": f"client{number}"})
    strategy = FedLaAvg(job=job, cohort_size=3, timeouts=Timeouts(deadline=20, poll=0.001))
    initial = {"coef": np.zeros((10, 64)), "intercept": np.zeros(10)}
    result = strategy.start(grid, to_record(initial), num_rounds=ROUNDS, evaluate_fn=evaluate)
    for number in (0, 20, 40, ROUNDS):
        print(f"round {number:2}: accuracy {result.evaluate_metrics_serverapp[number]['accuracy']:.3f}")
    found = audit(job / "ledger.sqlite", [ClientStore(FolderStorage(state)) for state in states])
    print(f"the sum of {len(found.in_sum)} clients' updates differs from the server's by {found.max_difference}")
