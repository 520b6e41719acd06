"""The example programs run and print what they should."""

import io
import re
import runpy
from contextlib import redirect_stdout
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


README = EXAMPLES.parent / "README.md"


def run(program: str | Path) -> str:
    """Run an example, or a program in another folder, in this process; return what it prints."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        runpy.run_path(str(EXAMPLES / program), run_name="__main__")
    return printed.getvalue()


def test_the_program_in_the_readme_prints_what_the_readme_says(tmp_path: Path) -> None:
    code, _, text = README.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")
    (tmp_path / "program.py").write_text(code, encoding="utf-8")
    printed = [line.split() for line in run(tmp_path / "program.py").splitlines()]
    said = re.findall(r"`(\w+) (0\.\d+)`", text)
    assert [title for title, _ in printed] == [title for title, _ in said] == ["FedAvg", "FedLaAvg"]
    for (_, accuracy), (_, stated) in zip(printed, said, strict=True):
        assert float(accuracy) == pytest.approx(float(stated), abs=0.005)  # processors round differently


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 100


def test_custom_model() -> None:
    """The lowest late accuracy of FedLaAvg is above that of FedAvg, which follows the available clients."""
    lows = {
        name: float(low) for name, low in re.findall(r"(\w+): [\d.]+, from ([\d.]+) to [\d.]+", run("own_model.py"))
    }
    assert lows["fedlaavg"] > lows["fedavg"] + 0.02


@pytest.mark.parametrize(("name", "package"), [("flax_model.py", "flax"), ("equinox_model.py", "equinox")])
def test_models_of_other_libraries(name: str, package: str) -> None:
    pytest.importorskip(package)
    output = run(name)
    if name == "flax_model.py":
        assert float(re.findall(r"test accuracy ([\d.]+)", output)[0]) > 0.8
    else:
        predicted, true = (re.findall(r"\d", part) for part in output.removeprefix("predicted").split("true"))
        assert sum(p == t for p, t in zip(predicted, true, strict=True)) >= 7


def test_scikit_learn_on_flower() -> None:
    """Accuracy reaches 0.85 with half of the clients unavailable, and the sum holds every client's update."""
    output = run("flower_sklearn.py")
    assert float(re.findall(r"round 60: accuracy ([\d.]+)", output)[0]) > 0.85
    assert "the sum of 10 clients' updates differs from the server's by 0" in output


def test_custom_algorithms_equal_the_built_in_ones() -> None:
    """Momentum and SCAFFOLD as in docs/howto/own-algorithm.md give the same models as the built-in versions."""
    found = re.findall(r"(\w+): test accuracy ([\d.]+), largest difference .* (\S+)", run("own_algorithm.py"))
    assert [name for name, _, _ in found] == ["momentum_fedavg", "own_scaffold"]
    for _, accuracy, difference in found:
        assert float(accuracy) > 0.85
        assert float(difference) < 1e-6


def test_the_page_about_algorithms_shows_the_example() -> None:
    page = (EXAMPLES.parent / "docs/howto/own-algorithm.md").read_text(encoding="utf-8")
    program = (EXAMPLES / "own_algorithm.py").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if ">>>" not in block]
    assert len(blocks) == 4
    for block in blocks:
        assert block in program


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "__init__.py", "own_model.py", "own_algorithm.py", "flax_model.py", "equinox_model.py", "flower_sklearn.py",
    }  # fmt: skip
