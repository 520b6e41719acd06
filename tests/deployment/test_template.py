"""The digits app: its clients start without heavy libraries, and have the same examples as a simulated federation."""

import subprocess
import sys

import numpy as np

import fedlatest
from fedlatest.deployment.template.digits import task

CLIENT = """
import sys
from fedlatest.deployment.template.digits import client_app, task
model, _ = task.train(task.initial_model(), *task.load_part(0, 3), steps=2, batch_size=5, rate=0.1, seed=(0,))
task.evaluate(model, *task.load_part(1, 3))
print(*sorted({"jax", "sklearn", "scipy", "matplotlib", "pandas", "torch"} & set(sys.modules)))
"""


def test_a_client_imports_no_heavy_library() -> None:
    """A node starts a process for every message; importing JAX would take a third of its time."""
    done = subprocess.run([sys.executable, "-c", CLIENT], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == ""


def test_the_clients_have_the_examples_of_a_simulated_federation() -> None:
    samples = fedlatest.load_digits()
    federation = samples.to_federation(fedlatest.dirichlet(samples.labels, num_clients=3, alpha=0.5, seed=0))
    for number in range(3):
        features, labels = task.load_part(number, 3)
        rows = federation.order[federation.offsets[number] : federation.offsets[number + 1]]
        np.testing.assert_array_equal(features, federation.features[rows])
        np.testing.assert_array_equal(labels, federation.labels[rows])
