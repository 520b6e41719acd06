"""scikit-learn on Flower, in one process: ten clients with digits of their own, half here by day and half by night.

On real nodes the same app is started by Flower (see `fedlatest deploy init`); nothing in it changes.
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
from fedlatest.flower import Assignment, FedLaAvg, Fitted, LocalGrid, Pace, client_app, from_record, to_record
from fedlatest.flower.client import Weights
from fedlatest.ledger import ClientStore, FolderStorage
from fedlatest.ledger.audit import audit

NUM_CLIENTS, ROUNDS = 10, 60
samples = fedlatest.load_digits()
federation = samples.deal(fedlatest.dirichlet(samples.labels, num_clients=NUM_CLIENTS, alpha=0.3, seed=0))
pattern = fedlatest.diurnal(np.arange(NUM_CLIENTS) % 2 == 0, period=10)


def train(model: Weights, features: np.ndarray, labels: np.ndarray) -> Weights:
    """Two iterations of scikit-learn's solver, from the model that was sent."""
    classifier = LogisticRegression(max_iter=2, C=0.1, warm_start=True)
    classifier.classes_ = np.unique(labels)  # a client may not have seen every digit
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
    """A client with its own digits."""
    rows = federation.order[federation.offsets[number] : federation.offsets[number + 1]]
    features, labels = federation.features[rows], federation.labels[rows]

    def fit(model: Weights, task: Assignment) -> Fitted:
        return Fitted(len(labels), {}, train(model, features, labels))

    return client_app(fit, num_examples=lambda context: len(labels))


def let_come_and_go(round: int) -> None:
    """Who is online in a round is the pattern's to say."""
    for node, online in zip(grid.nodes.values(), pattern.available(round, 0), strict=True):
        node.online = bool(online)


def evaluate(server_round: int, model: ArrayRecord) -> MetricRecord:
    """Accuracy on digits that nobody trains on."""
    let_come_and_go(server_round)
    arrays = from_record(model)
    guesses = (samples.test_features @ arrays["coef"].T + arrays["intercept"]).argmax(axis=1)
    return MetricRecord({"accuracy": float((guesses == samples.test_labels).mean())})


with tempfile.TemporaryDirectory() as folder:
    job, grid = Path(folder) / "job", LocalGrid()
    states = [Path(folder) / f"node{number}" for number in range(NUM_CLIENTS)]
    for number, state in enumerate(states):
        grid.add(client(number), {"state-dir": str(state), "name": f"client{number}"})
    strategy = FedLaAvg(job=job, cohort_size=3, pace=Pace(deadline=20, poll=0.001))
    first = {"coef": np.zeros((10, 64)), "intercept": np.zeros(10)}
    result = strategy.start(grid, to_record(first), num_rounds=ROUNDS, evaluate_fn=evaluate)
    for number in (0, 20, 40, ROUNDS):
        print(f"round {number:2}: accuracy {result.evaluate_metrics_serverapp[number]['accuracy']:.3f}")
    found = audit(job / "ledger.sqlite", [ClientStore(FolderStorage(state)) for state in states])
    print(f"the sum is that of {len(found.in_sum)} clients' updates, off by {found.max_difference}")
