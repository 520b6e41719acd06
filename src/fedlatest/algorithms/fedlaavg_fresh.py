"""FedLaAvg, fresh: the setting of FedLaAvg that we recommend; it does not resonate with the availability."""

from dataclasses import replace
from typing import Literal

import optax

from fedlatest.algorithms.base import Algorithm
from fedlatest.algorithms.fedlaavg import Selection, fedlaavg
from fedlatest.algorithms.weighting import Weighting


def fedlaavg_fresh(
    *,
    weighting: Weighting = "loss",
    empty_round: Literal["step", "hold"] = "step",
    selection: Selection = "weighted",
    server_optimizer: optax.GradientTransformation | None = None,
    server_step: float = 1.0,
) -> Algorithm:
    r"""Draw clients by their absence; step along the average of all latest updates and the cohort's mean difference.

        B_r = K clients of C_r, drawn with probabilities proportional to (r - R_i)^2
        x   = x + server_step (u + (1/|B_r|) \sum_{i in B_r} (u_i_new - u_i))
        u   = u + (1/N) \sum_{i in B_r} (u_i_new - u_i)          so that u = (1/N) \sum_i u_i at all times

    This is `fedlaavg(fresh="cohort", selection="weighted")`. The step is that of FedVARP (Jhunjhunwala et al. 2022).
    The paper's step and oldest-first selection resonate under some availability; docs/theory.md explains why these do
    not. If all clients take part it is FedAvg.

    Each client keeps its latest update; the server keeps their sum. An upload has the size of the model. Participation
    rates are not needed.

    Args:
        weighting: How a client's share of the samples is used; see `fedlaavg`.
        empty_round: What happens when nobody takes part: "step" moves along u, "hold" leaves the model unchanged.
        selection: Which clients take part; see `fedlaavg`.
        server_optimizer: An optax transformation of the step; see `fedlaavg`.
        server_step: The server's step size.

    >>> fedlaavg_fresh(weighting="update").obstacles_to_deployment()
    []
    """
    base = fedlaavg(
        weighting=weighting, empty_round=empty_round, fresh="cohort", selection=selection,
        server_optimizer=server_optimizer, server_step=server_step,
    )  # fmt: skip
    return replace(
        base,
        name="fedlaavg_fresh",
        title="FedLaAvg, fresh",
        paper=f"{base.paper}; with the step of Jhunjhunwala et al. 2022, FedVARP",
    )
