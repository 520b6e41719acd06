"""Recipe `digits`: one algorithm, of any kind, on the bundled digits in the setting of `quickstart`."""

from typing import Any

from fedlatest.experiments.experiment import Experiment, Recipe, resolve_always_available
from fedlatest.experiments.quickstart import DEFAULTS as QUICKSTART
from fedlatest.experiments.quickstart import quickstart

DEFAULTS: dict[str, Any] = {"algorithm": "fedlaavg", **QUICKSTART}


def _experiments(overrides: list[str]) -> list[Experiment]:
    values = resolve_always_available(DEFAULTS, overrides, availability_keys={"period", "digits"})
    return [Experiment(values["algorithm"], values)]


digits = Recipe(
    name="digits",
    summary="one algorithm on the bundled digits, in the setting of quickstart; algorithm=NAME takes any",
    load=quickstart.load,
    experiments=_experiments,
    defaults=DEFAULTS,
    reads_files=False,
)
