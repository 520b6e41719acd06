"""Which other packages the report imports."""

import ast
import subprocess
import sys
from pathlib import Path

import fedlatest.report


def test_report_imports_nothing_that_trains() -> None:
    package = Path(fedlatest.report.__file__).parent
    source = "".join(path.read_text() for path in package.glob("*.py"))
    assert "fedlatest.runs" in source
    for trainer in ("fedlatest.simulation", "fedlatest.algorithms", "fedlatest.experiments"):
        assert trainer not in source


def test_page_is_written_without_jax(tmp_path: Path) -> None:
    """Reading a run and writing the page, figures and claims imports neither JAX nor a module that imports it."""
    code = (
        "import sys; from pathlib import Path; from tests.report.recorded_runs import finish, write_run; "
        "from fedlatest.report import draw_curves, read_runs, write_page; folder = Path(sys.argv[1]); "
        "finish(write_run(folder / 'a')); runs = read_runs([folder]); write_page(runs, folder / 'page.html'); "
        "draw_curves(runs, folder / 'curves.png'); sys.exit('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_command_imports_packages_only_when_it_runs() -> None:
    """At module level, the command `report` imports of fedlatest only the application and the exceptions."""
    path = Path(fedlatest.report.__file__).parents[1] / "cli/report.py"
    modules = [node.module for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
    assert [module for module in modules if str(module).startswith("fedlatest")] == [
        "fedlatest.cli.app",
        "fedlatest.errors",
    ]
