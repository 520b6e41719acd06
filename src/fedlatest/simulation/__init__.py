"""The compiled simulator."""

from fedlatest.simulation.engine import Engine, Training, Variant
from fedlatest.simulation.experiment_spec import ExperimentSpec
from fedlatest.simulation.result import Progress, Result
from fedlatest.simulation.simulate import simulate, simulate_spec, simulate_together
from fedlatest.simulation.trained_model import TrainedModel, load_model

__all__ = [
    "Engine",
    "ExperimentSpec",
    "Progress",
    "Result",
    "TrainedModel",
    "Training",
    "Variant",
    "load_model",
    "simulate",
    "simulate_spec",
    "simulate_together",
]
