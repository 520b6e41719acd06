"""KEY=VALUE overrides: known keys of every component, their types, and the error messages."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from fedlatest import ConfigError, FedlatestError
from fedlatest.algorithms import ALGORITHMS, ASYNCHRONOUS
from fedlatest.data import generated_tweets, load_digits
from fedlatest.experiments import RECIPES, FederationBuilder
from fedlatest.experiments.experiment import timing_of
from fedlatest.experiments.mnist import DEFAULTS
from fedlatest.experiments.settings import COMMON, COMPONENTS, OPTIONAL, build_component, keywords, resolve


def test_defaults_of_mnist_are_those_of_the_paper() -> None:
    values = resolve(DEFAULTS, [])
    assert values == {
        "algorithm": "fedlaavg", "availability": "diurnal", "partition": "label", "model": "logistic",
        "num_clients": 1000, "participation": 0.1, "local_steps": 10, "batch_size": 5, "learning_rate": 0.01,
        "rounds": 4000, "evaluate_every": 20, "partition_seed": 0,
        "weighting": "loss", "empty_round": "step", "fresh": "average", "average_over": "all",
        "damping": 0.0, "selection": "oldest", "server_step": 1.0, "period": 100, "digits": 1,
    }  # fmt: skip


def test_keys_depend_on_the_components() -> None:
    values = resolve(DEFAULTS, ["algorithm=fedprox", "mu=0.5", "availability=markov", "share=0.2", "partition=iid"])
    assert (values["mu"], values["share"], values["correlation"]) == (0.5, 0.2, 50.0)
    assert "period" not in values
    assert "empty_round" not in values


@pytest.mark.parametrize(
    ("text", "value"), [("average", "average"), ("cohort", "cohort"), ("0.02", 0.02), ("1", 1.0), ("1e-3", 0.001)]
)
@pytest.mark.parametrize("recipe", RECIPES)
def test_fresh_is_a_name_or_a_number_in_every_recipe(recipe: str, text: str, value: object) -> None:
    experiment = RECIPES[recipe].experiments([f"fresh={text}"])[0]
    assert experiment.values["fresh"] == value
    assert type(experiment.values["fresh"]) is type(value)
    assert build_component("algorithm", experiment.values).settings.get("fresh", "average") == value


@pytest.mark.parametrize("name", sorted(set(COMPONENTS["algorithm"]) - {"sequential", "fedasync"}))
def test_the_server_step_of_every_algorithm_is_a_key(name: str) -> None:
    values = resolve(DEFAULTS, [f"algorithm={name}", "server_step=0.3"])
    assert values["server_step"] == 0.3
    assert build_component("algorithm", values).numbers["server_step"] == 0.3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["perod=3"], "perod: unknown key; did you mean period?"),
        (["num-clients=3"], "num-clients: unknown key; did you mean num_clients?"),
        (["C=3"], "C: unknown key; did you mean local_steps or participation?"),
        (["data=DIR"], "data: is not a key; use the option --data"),
        (["period"], "--set period: expected KEY=VALUE"),
        (["=3"], "--set =3: expected KEY=VALUE"),
        (["period=ten"], "period=ten: expected a whole number"),
        (["period=1.5"], "period=1.5: expected a whole number"),
        (["learning_rate=fast"], "learning_rate=fast: expected a number"),
        (["algorithm=fedlavg"], "algorithm=fedlavg: unknown; did you mean fedlaavg?"),
        (["availability=sometimes"], "availability=sometimes: unknown; `fedlatest list availability` lists the names"),
        (["server_optimizer=adam"], "server_optimizer: unknown key"),  # a Python object: not for the command line
        (["algorithm=sequential", "server_step=2"], "algorithm=fedavg and "),
        (["fresh=most"], "fresh=most: choose one of average, cohort, or give a number"),
        (["server_step=fast"], "server_step=fast: expected a number"),
        (["mu=1"], "mu: belongs to algorithm=fedprox and algorithm=fedasync, which this run does not use"),
        (["weighting=both"], "weighting=both: choose one of loss, update, none"),
        (["availability=trace"], "trace: required by availability=trace; add --set trace=..."),
        (["availability=trace", "trace=x.csv", "wrap=maybe"], "wrap=maybe: expected true or false"),
    ],
)
def test_errors_name_the_key_the_value_and_the_fix(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        resolve(DEFAULTS, overrides)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["period=0"], "period=0"),
        (["digits=10"], "digits=10: must be 1 .. 9"),
        (
            ["num_clients=1001"],
            "num_clients=1001: one label per client needs a multiple of the 10 labels, such as 1000",
        ),
        (["num_clients=5000"], "num_clients=5000: too many for 1438 samples"),
        (["availability=bernoulli", "rate=0.9", "spread=0.2"], "spread=0.2"),
        (["availability=lifetime", "late=2"], "late=2"),
        (["partition=dirichlet", "alpha=-1"], "alpha=-1"),
        (["algorithm=fedprox", "mu=-1"], "mu=-1"),
        (["model=mlp", "hidden=0"], "hidden=0"),
        (["availability=trace", "trace=nowhere.csv"], "trace=nowhere.csv: cannot be read"),
    ],
)
def test_values_out_of_range_are_rejected_by_spec(overrides: list[str], message: str) -> None:
    experiment = RECIPES["mnist"].experiments(["num_clients=100", *overrides])[0]
    with pytest.raises(ConfigError if "trace" not in message else ValueError) as error:
        experiment.spec(FederationBuilder(load_digits()))
    assert message in str(error.value)


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_can_be_built(component: str) -> None:
    """Each algorithm, availability model, partition and model, with its defaults, on digits or on tweets."""
    digits, tweets = FederationBuilder(load_digits()), FederationBuilder(generated_tweets(30))
    for name, factory in COMPONENTS[component].items():
        if "trace" in keywords(factory):
            continue  # needs a file
        recipe, builder = ("tweets", tweets) if name in ("sleep", "account", "lstm") else ("mnist", digits)
        timing = ["training_seconds=10", "seconds_per_round=60"] if name in ASYNCHRONOUS else []
        experiment = RECIPES[recipe].experiments([f"{component}={name}", "num_clients=20", *timing])[0]
        spec = experiment.spec(builder)
        assert spec.federation.num_clients == spec.availability.num_clients == 20
        assert component != "algorithm" or spec.algorithm.name == name


@pytest.mark.parametrize(
    ("recipe", "override", "message"),
    [
        ("mnist", "model=lstm", "model=lstm: takes only texts, and digits holds numbers"),
        ("mnist", "partition=account", "partition=account: takes only texts, and digits holds numbers"),
        ("mnist", "availability=sleep", "availability=sleep: this data set has no sample times"),
        ("tweets", "model=logistic", "model=logistic: does not take texts; use model=lstm"),
        ("tweets", "partition=iid", "partition=iid: does not take texts; use partition=account"),
        ("tweets", "num_clients=31", "num_clients=31: must be at least 1 and at most"),
        ("tweets", "alpha=1.5", "alpha=1.5: must be in [0, 1]"),
        ("tweets", "window_hours=24", "window_hours=24.0: must be at least 1 second and less than 24 hours"),
        ("tweets", "rounds_per_day=0", "rounds_per_day=0: must be in 1"),
        ("tweets", "hidden=0", "hidden=0: must be at least 1 unit"),
        ("tweets", "partition_seed=-1", "partition_seed=-1: must be 0 or larger"),
    ],
)
def test_components_for_texts_and_for_numbers_are_not_mixed(recipe: str, override: str, message: str) -> None:
    data = load_digits() if recipe == "mnist" else generated_tweets(30)
    experiment = RECIPES[recipe].experiments(["num_clients=20", override])[0]
    with pytest.raises(ConfigError) as error:
        experiment.spec(FederationBuilder(data))
    assert message in str(error.value)


def test_default_mu_of_fedprox_depends_on_the_task() -> None:
    """The paper's mu: 1.0 on MNIST, 0.01 on Sentiment140; an override of mu stays."""
    [default] = RECIPES["sentiment140"].experiments(["algorithm=fedprox"])
    [overridden] = RECIPES["sentiment140"].experiments(["algorithm=fedprox", "mu=0.5"])
    [spaced] = RECIPES["sentiment140"].experiments(["algorithm = fedprox"])
    [changed] = RECIPES["sentiment140"].experiments(["algorithm=fedprox", "algorithm=fedavg"])
    assert spaced.values["mu"] == 0.01
    assert "mu" not in changed.values
    [on_mnist] = RECIPES["mnist"].experiments(["algorithm=fedprox"])
    assert (default.values["mu"], overridden.values["mu"], on_mnist.values["mu"]) == (0.01, 0.5, 1.0)


def test_quickstart_runs_four_algorithms() -> None:
    experiments = RECIPES["quickstart"].experiments(["mu=2.5", "period=7"])
    assert [experiment.name for experiment in experiments] == ["fedlaavg", "fedavg", "fedprox", "sequential"]
    assert experiments[2].values["mu"] == 2.5
    assert {experiment.values["period"] for experiment in experiments} == {7}
    with pytest.raises(ConfigError, match="algorithm: quickstart always runs fedlaavg"):
        RECIPES["quickstart"].experiments(["algorithm=naive"])


def test_clients_are_always_available_when_participation_is_1() -> None:
    """The paper's beta = 1.0; an override of the availability or of one of its keys stays."""
    assert RECIPES["mnist"].experiments(["participation=1.0"])[0].values["availability"] == "always"
    for override in ("availability=diurnal", "period=50"):
        values = RECIPES["mnist"].experiments(["participation=1.0", override])[0].values
        assert values["availability"] == "diurnal"


def test_a_recipes_default_applies_to_its_own_component_only() -> None:
    """`period` is 100 for the paper's diurnal blocks; sine keeps its own default of 20."""
    assert resolve(DEFAULTS, ["availability=sine"])["period"] == 20


def test_quickstart_passes_a_key_to_the_algorithms_that_have_it() -> None:
    experiments = {e.name: e.values for e in RECIPES["quickstart"].experiments(["empty_round=hold", "weighting=none"])}
    assert experiments["fedlaavg"]["empty_round"] == "hold"
    assert experiments["fedavg"]["weighting"] == experiments["fedprox"]["weighting"] == "none"
    assert "weighting" not in experiments["sequential"]


@pytest.mark.parametrize("name", [*ALGORITHMS, *ASYNCHRONOUS])
def test_manifests_hold_every_key_of_the_algorithm(name: str) -> None:
    """A report tells by these entries which values of a recipe belong to the algorithm and not to the setting."""
    factory = COMPONENTS["algorithm"][name]
    algorithm = factory()
    assert set(keywords(factory)) <= {*algorithm.settings, *algorithm.numbers}


def test_no_two_components_share_a_key() -> None:
    """An experiment has one value per key: one that an algorithm and an availability model share would set both."""
    owners: dict[str, set[str]] = {key: {"the recipe"} for key in (*COMMON, *OPTIONAL)}
    for component, factories in COMPONENTS.items():
        for factory in factories.values():
            for key in keywords(factory):
                owners.setdefault(key, set()).add(component)
    assert {key: names for key, names in owners.items() if len(names) > 1} == {}


def test_timing_keys(tmp_path: Path) -> None:
    """Delays come from seconds for all clients or from a file; limits are passed on."""
    assert timing_of({}, 3) is None
    found = timing_of({"training_seconds": 4.0, "upload_seconds": 1.0, "answers": 2, "seconds_per_round": 5}, 3)
    assert found is not None
    assert int(found.delays.milliseconds(0, 0, 0)) == 5000
    assert (found.answers, found.seconds_per_round, found.deadline) == (2, 5, None)
    (tmp_path / "delays.csv").write_text("client,training_seconds\n0,2\n1,3\n")
    read = timing_of({"delays": str(tmp_path / "delays.csv"), "interruption": "finish"}, 3)
    assert read is not None
    assert read.delays.milliseconds(0, jnp.arange(3), 0).tolist() == [2000, 3000, 2000]
    random = timing_of({"training_seconds": 10.0, "training_sigma": 0.5}, 3)
    assert random is not None
    assert int(random.delays.milliseconds(0, 0, 0)) != int(random.delays.milliseconds(0, 0, 1))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"delays": "a.csv", "training_seconds": 1.0},
            "delays=a.csv: give a file or seconds for all clients, not both",
        ),
        ({"delays": "nowhere.csv"}, "delays=nowhere.csv: cannot be read, no such file here"),
        ({"training_sigma": 1.0}, "training_sigma: needs training_seconds"),
        ({"deadline": -1.0}, "deadline=-1.0: must be above 0"),
    ],
)
def test_timing_keys_are_checked(values: dict[str, Any], message: str) -> None:
    with pytest.raises(FedlatestError, match=message):
        timing_of(values, 3)
