"""Draw the pictures of the page about the examples: the test accuracy over the rounds while each example runs.

python -m docs_build.example_figures    writes docs/images/example-NAME.png for every program in examples/ (1 minute)
"""

import runpy
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fedlatest
from fedlatest.report import Line, RunRecord, label_runs, read_runs
from fedlatest.report.figure_annotations import label_line_ends, shade_second_group
from fedlatest.report.figures import STYLES, algorithm_styles, canvas, draw_metric, save

ROOT = Path(__file__).parents[1]
SIZE = (4.4, 2.4)  # inches


def main() -> None:
    """Run every example and draw its picture."""
    for program in sorted((ROOT / "examples").glob("*.py")):
        if program.name == "__init__.py":
            continue
        with tempfile.TemporaryDirectory() as folder:
            names = run_recorded(program, Path(folder))
            path = ROOT / f"docs/images/example-{program.stem.replace('_', '-')}.png"
            runs = read_runs([Path(folder)]) if any(Path(folder).iterdir()) else []
            print(draw_runs(runs, path) if runs else draw_job(names, path))


def run_recorded(program: Path, folder: Path) -> Mapping[str, Any]:
    """Run a program; write a run folder into `folder` for each of its simulations; return its global names."""
    simulate = fedlatest.simulate

    def simulate_recorded(*args: Any, **settings: Any) -> fedlatest.Result:
        copy = folder / str(len(list(folder.iterdir())))
        result = simulate(*args, **{"out": copy, "evaluate_every": 5, **settings})
        if not copy.exists():  # the program writes the run into a folder of its own
            shutil.copytree(settings["out"], copy)
        return result

    vars(fedlatest)["simulate"] = simulate_recorded
    try:
        return runpy.run_path(str(program), run_name="__main__")
    finally:
        vars(fedlatest)["simulate"] = simulate


def draw_runs(runs: list[RunRecord], path: Path) -> Path:
    """Draw the test accuracy of simulated runs."""
    with canvas(*SIZE) as figure:
        axes = figure.subplots(1, 1, squeeze=False)[0, 0]
        lines = [Line(label, run) for label, run in zip(label_runs(runs), runs, strict=True)]
        draw_metric(axes, lines, "test_accuracy", algorithm_styles(run.algorithm for run in runs))
        shade_second_group([(axes, runs)])
        label_line_ends(axes)
        return save(figure, path)


def draw_job(names: Mapping[str, Any], path: Path) -> Path:
    """Draw the test accuracy that a Flower strategy's `result` holds."""
    found = {number: metrics["accuracy"] for number, metrics in names["result"].evaluate_metrics_serverapp.items()}
    with canvas(*SIZE) as figure:
        axes = figure.subplots(1, 1, squeeze=False)[0, 0]
        axes.plot(found.keys(), found.values(), color=STYLES["fedlaavg"][0], linewidth=1.8, label="FedLaAvg")
        axes.set(xlabel="round", ylabel="test accuracy", xmargin=0.01)
        label_line_ends(axes)
        return save(figure, path)


if __name__ == "__main__":
    main()
