"""The compiled simulator: local training, the round loop, evaluation, recording.

May import `algorithms`, `availability`, `data`, `kernels`, `models`, `runs` and `theory`.
"""

from fedlatest.simulation.engine import Engine
from fedlatest.simulation.experiment_spec import ExperimentSpec
from fedlatest.simulation.recorder import Result
from fedlatest.simulation.simulate import Progress, needed_compilations, simulate, simulate_spec, simulate_together
from fedlatest.simulation.trained_model import TrainedModel, load_model

__all__ = [
    "Engine",
    "ExperimentSpec",
    "Progress",
    "Result",
    "TrainedModel",
    "load_model",
    "needed_compilations",
    "simulate",
    "simulate_spec",
    "simulate_together",
]
