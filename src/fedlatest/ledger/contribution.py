"""What a client's training amounts to: its update, clipped, weighted, in units. Plain NumPy."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fedlatest.ledger.layout import Arrays, Layout
from fedlatest.ledger.messages import Instruction
from fedlatest.ledger.units import Vector, to_units


def contribution(instruction: Instruction, layout: Layout, broadcast: Arrays, local: Arrays, weight: float) -> Vector:
    """A client's new value, from the model that it was sent and the one that it trained."""
    settings = instruction.settings
    update = _within(settings["clip_norm"], layout.flatten(local) - layout.flatten(broadcast))
    return to_units(update * np.float32(weight) if settings["weighs"] else update, settings["unit"])


def _within(limit: float | None, update: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The update, shortened until its norm is within the limit."""
    length = 0.0 if limit is None else float(np.linalg.norm(update.astype(np.float64)))
    return update if limit is None or not length > limit else update * np.float32(limit / length)
