"""The compiled simulator."""

from fedlatest.simulation.engine import Engine, Training, Variant
from fedlatest.simulation.plan import Plan
from fedlatest.simulation.result import Progress, Result
from fedlatest.simulation.simulate import simulate, simulate_plan, simulate_together

__all__ = [
    "Engine",
    "Plan",
    "Progress",
    "Result",
    "Training",
    "Variant",
    "simulate",
    "simulate_plan",
    "simulate_together",
]
