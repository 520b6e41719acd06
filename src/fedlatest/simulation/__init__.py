"""The compiled simulator."""

from fedlatest.simulation.engine import Engine, Training
from fedlatest.simulation.simulate import Progress, Result, simulate

__all__ = ["Engine", "Progress", "Result", "Training", "simulate"]
