"""The PyTorch example: its two versions differ in a few lines, and the converted one learns."""

import difflib
import importlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fedlatest.deployment.scaffold import app_config
from fedlatest.flower import LocalGrid
from fedlatest.ledger import ClientStore, FolderStorage
from fedlatest.ledger.audit import audit
from fedlatest.ledger.event_log import read_events
from fedlatest.runs import RunFolder

EXAMPLE = Path(__file__).parents[2] / "examples/flower_pytorch"
STOCK, CONVERTED = EXAMPLE / "fedavg", EXAMPLE / "fedlaavg"


def files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.suffix in (".py", ".toml"))


def changes() -> list[str]:
    """Return the lines that are removed or added, without blank ones."""
    found: list[str] = []
    for path in files(STOCK):
        old, new = ((folder / path).read_text().splitlines() for folder in (STOCK, CONVERTED))
        found += [line for line in difflib.ndiff(old, new) if line[0] in "+-" and line[2:].strip()]
    return found


def test_the_two_versions_differ_in_a_few_lines() -> None:
    assert files(STOCK) == files(CONVERTED)
    assert sum(line.startswith("+") for line in changes()) <= 7
    assert sum(line.startswith("-") for line in changes()) <= 5


def test_the_readme_shows_all_changes() -> None:
    shown = EXAMPLE.joinpath("README.md").read_text().splitlines()
    assert [line for line in changes() if line[0] + line[2:] not in shown] == []


def test_deploy_local_accepts_the_converted_app() -> None:
    """The README recommends `fedlatest deploy local --app fedlaavg`, which sets `job` and `rounds`."""
    assert {"job", "rounds"} <= set(app_config(CONVERTED))


@pytest.fixture
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the converted app importable, and let it write its job and its model to `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(CONVERTED)
    yield
    for name in [name for name in sys.modules if name.startswith("pytorch_digits")]:
        del sys.modules[name]


@pytest.mark.usefixtures("_in_tmp_path")
def test_the_converted_app_learns(tmp_path: Path) -> None:
    """Four nodes with different digits, two per round; in the second run only three of them are available."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; the example needs it")
    torch.manual_seed(0)
    server, client = (importlib.import_module(f"pytorch_digits.{name}") for name in ("server_app", "client_app"))
    config = tomllib.loads((CONVERTED / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    for rounds, num_nodes in ((4, 4), (6, 3)):
        grid, run_config = LocalGrid(), {**config, "rounds": rounds, "local-epochs": 3}
        for number in range(num_nodes):
            node_config = {"partition-id": number, "num-partitions": 4, "state-dir": str(tmp_path / f"node{number}")}
            grid.add(client.app, node_config, run_config=run_config)
        server.app(grid, Context(grid.run.run_id, 0, {}, RecordDict(), run_config))
    assert (tmp_path / "model.pt").is_file()
    accuracy = [row.test_accuracy for row in RunFolder(tmp_path / "job/run").metrics().rows]
    assert len(accuracy) == 7
    assert accuracy[-1] > 0.4, accuracy
    stores = [ClientStore(FolderStorage(tmp_path / f"node{number}")) for number in range(4)]
    found = audit(tmp_path / "job/ledger.sqlite", stores)
    assert found.holds
    assert len(found.in_sum) == 4
    assert not [
        event for event in read_events(tmp_path / "job/events.jsonl") if event["event"] in ("failed", "refused")
    ]
