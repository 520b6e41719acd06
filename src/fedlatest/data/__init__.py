"""Data sets and how they are dealt to clients."""

from fedlatest.data.digits import load_digits
from fedlatest.data.federation import Federation
from fedlatest.data.mnist import load_mnist
from fedlatest.data.partition import PARTITIONS, Partition, by_client, by_label, dirichlet, iid
from fedlatest.data.samples import Samples

__all__ = [
    "PARTITIONS",
    "Federation",
    "Partition",
    "Samples",
    "by_client",
    "by_label",
    "dirichlet",
    "iid",
    "load_digits",
    "load_mnist",
]
