"""Peers: an environment that cannot be made is reported with the reason, and one that exists is used."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import peers
from benchmarks.peer_programs import workload
from benchmarks.peers import Peer, PeerError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDLATEST_CACHE", str(tmp_path))
    return tmp_path / "peers"


def with_environment(folder: Path, peer: Peer) -> None:
    """Write an environment in which the peer's packages count as installed; its Python is the one of the tests."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "installed.json").write_text(json.dumps(peer.packages))


@pytest.mark.slow
def test_a_peer_that_cannot_be_installed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip has no index and no such package; the reason is the last line that it prints."""
    for name in ("PIP_NO_INDEX", "PIP_DISABLE_PIP_VERSION_CHECK"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    peer = Peer(("fedlatest-no-such-package",), "pytorch_loop.py", "nothing")
    with pytest.raises(PeerError, match=r"cannot install it .*fedlatest-no-such-package"):
        peers.measure("missing", peer, 1)


def test_a_program_that_fails_says_why(own_cache: Path) -> None:
    peer = Peer((), "no_such_program.py", "nothing")
    with_environment(own_cache / "broken", peer)
    with pytest.raises(PeerError, match=r"cannot run it .*no_such_program"):
        peers.measure("broken", peer, 1)


def test_an_environment_is_used_again(own_cache: Path) -> None:
    peer = Peer(("torch==2.13.0",), "pytorch_loop.py", "a loop")
    with_environment(own_cache / "made-before", peer)
    assert peers.environment_of("made before", peer) == own_cache / "made-before" / "bin" / "python"


def test_every_peer_has_a_program() -> None:
    for peer in peers.PEERS.values():
        assert (peers.PROGRAMS / peer.program).is_file()


def test_the_workload_is_that_of_the_benchmarks() -> None:
    """The programs of the peers import nothing of fedlatest, so they state the sizes again."""
    from benchmarks import workloads

    assert (workload.COHORT, workload.STEPS, workload.BATCH) == (workloads.COHORT, workloads.STEPS, 5)
    assert (workload.PIXELS, workload.CLASSES) == (workloads.PIXELS, workloads.CLASSES)
    assert workload.BATCH == workloads.IMAGE_BATCH
    assert workload.RATE == workloads.IMAGE_RATE


def test_a_stopwatch_leaves_out_the_first_round(capsys: pytest.CaptureFixture[str]) -> None:
    watch = workload.Stopwatch()
    watch.moments = [10.0, 10.5, 10.75]
    watch.report()
    assert np.allclose(json.loads(capsys.readouterr().out), [500, 250])
