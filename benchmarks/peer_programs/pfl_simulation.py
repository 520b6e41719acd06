"""FedAvg in pfl-research with its simulated backend and PyTorch, in one process."""

import sys

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy
from workload import BATCH, CLASSES, CLIENTS, COHORT, PIXELS, RATE, STEPS, Stopwatch, make_data


class Logistic(torch.nn.Module):
    """Multinomial logistic regression with the loss that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(PIXELS, CLASSES)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.layer(features)

    def loss(self, features: torch.Tensor, labels: torch.Tensor, eval: bool = False) -> torch.Tensor:
        """Return the mean cross-entropy of a batch."""
        self.train(not eval)
        return cross_entropy(self(features), labels)

    def metrics(self, *_: torch.Tensor, **__: object) -> dict[str, object]:
        """Return nothing: the rounds are not evaluated."""
        return {}


class NoteEnd(TrainingProcessCallback):
    """Notes the end of each round."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def after_central_iteration(self, *_: object, **__: object) -> tuple[bool, Metrics]:
        """Note the end and go on."""
        self.watch.round_done()
        return False, Metrics()


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    features, labels = (torch.from_numpy(array) for array in make_data())
    users = get_user_sampler("random", list(range(CLIENTS)))
    data = FederatedDataset(lambda user: Dataset((features[user], labels[user]), user_id=str(user)), users)
    module = Logistic()
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    watch = Stopwatch()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds + 1,
            evaluation_frequency=10**9,
            train_cohort_size=COHORT,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_num_epochs=None, local_num_steps=STEPS, local_learning_rate=RATE, local_batch_size=BATCH
        ),
        callbacks=[NoteEnd(watch)],
    )
    watch.report()


if __name__ == "__main__":
    main(int(sys.argv[1]))
