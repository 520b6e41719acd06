"""Differential privacy of the clients: what is guaranteed, how much noise that takes, and the noise of each round.

`Privacy` states a guarantee, `plan_noise` turns it into a `NoisePlan`, and both runtimes apply the plan. Making a plan
needs the extra `privacy` (jax-privacy for the factorisation, dp-accounting for epsilon); applying one needs NumPy only.

Imports nothing of fedlatest but its errors, and JAX not at all.
"""

from fedlatest.privacy.guarantee import Mechanism, Privacy, Uploads
from fedlatest.privacy.noise_plan import NoisePlan
from fedlatest.privacy.planning import plan_noise

__all__ = ["Mechanism", "NoisePlan", "Privacy", "Uploads", "plan_noise"]
