"""The task: a small network, the digits of scikit-learn, training and testing."""

from functools import cache

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

NUM_TEST = 300


class Net(nn.Module):
    """Two convolutions and a linear layer, for images of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 16, 3, padding=1)
        self.last = nn.Linear(16 * 2 * 2, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = functional.max_pool2d(functional.relu(self.first(images)), 2)
        hidden = functional.max_pool2d(functional.relu(self.second(hidden)), 2)
        return self.last(hidden.flatten(1))


@cache
def load_all() -> TensorDataset:
    """Return all images, shuffled with a fixed seed."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    return TensorDataset(images[order], torch.tensor(digits.target)[order])


def load_part(number: int, num_parts: int) -> DataLoader:
    """Return the images of one client; each client has only some of the digits."""
    images, labels = (part[NUM_TEST:] for part in load_all().tensors)
    by_digit = torch.argsort(labels, stable=True)
    rows = by_digit.tensor_split(num_parts)[number]
    return DataLoader(TensorDataset(images[rows], labels[rows]), batch_size=32, shuffle=True)


def load_test() -> DataLoader:
    """Return test images, which no client has."""
    images, labels = (part[:NUM_TEST] for part in load_all().tensors)
    return DataLoader(TensorDataset(images, labels), batch_size=NUM_TEST)


def train(net: nn.Module, loader: DataLoader, *, epochs: int, rate: float) -> float:
    """Train with SGD and return the mean loss over the steps."""
    optimiser = torch.optim.SGD(net.parameters(), lr=rate)
    net.train()
    losses = []
    for _ in range(epochs):
        for images, labels in loader:
            optimiser.zero_grad()
            loss = functional.cross_entropy(net(images), labels)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    return sum(losses) / len(losses)


def test(net: nn.Module, loader: DataLoader) -> tuple[float, float]:
    """Return the loss and the accuracy."""
    net.eval()
    loss, correct = 0.0, 0
    with torch.no_grad():
        for images, labels in loader:
            logits = net(images)
            loss += functional.cross_entropy(logits, labels, reduction="sum").item()
            correct += int((logits.argmax(1) == labels).sum())
    return loss / len(loader.dataset), correct / len(loader.dataset)
