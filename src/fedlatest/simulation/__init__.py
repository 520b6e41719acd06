"""The compiled simulator: local training, the round loop, evaluation, recording.

May import `algorithms`, `availability`, `data`, `delays`, `kernels`, `models`, `privacy`, `runs` and
`theory`.
"""

from fedlatest.simulation.augmentation import Augmentation, crop_flip
from fedlatest.simulation.engine import Engine
from fedlatest.simulation.experiment_spec import ExperimentSpec
from fedlatest.simulation.recorder import Result
from fedlatest.simulation.schedules import inverse_sqrt
from fedlatest.simulation.simulate import Progress, needed_compilations, simulate, simulate_spec, simulate_together
from fedlatest.simulation.trained_model import TrainedModel, load_model

__all__ = [
    "Augmentation",
    "Engine",
    "ExperimentSpec",
    "Progress",
    "Result",
    "TrainedModel",
    "crop_flip",
    "inverse_sqrt",
    "load_model",
    "needed_compilations",
    "simulate",
    "simulate_spec",
    "simulate_together",
]
