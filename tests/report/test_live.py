"""The live page: what it contains while runs go on, and what its server answers and refuses."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from fedlatest.errors import ConfigError
from fedlatest.report import RunRecord, live_page
from fedlatest.report.live_page import LivePage
from fedlatest.report.live_server import LiveServer
from fedlatest.report.page_data import run_data
from fedlatest.runs import Row, RunFolder
from tests.command_line import fedlatest_here
from tests.report.recorded_runs import finish, write_run


@contextmanager
def served(page: LivePage) -> Iterator[LiveServer]:
    """Serve a page in a thread."""
    with LiveServer(page, host="127.0.0.1", port=0) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: LiveServer, path: str, *, host: str | None = None, method: str = "GET") -> tuple[int, str, Any]:
    """Return status, content and headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host=host is not None)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), answer.headers
    connection.close()
    return found


def update_of(page: LivePage, version: str = "") -> Any:
    text = page.as_json(version)
    assert text is not None
    return json.loads(text)


def test_page_changes_with_the_runs(tmp_path: Path) -> None:
    """No run, a run, another evaluation, a second run, the end of the first: each is a new version."""
    page = LivePage([tmp_path], title="<live>", note=lambda: "<a note>")
    assert "waits for one" in page.as_html()
    assert "&lt;live&gt;" in page.as_html()
    assert page.as_json("") is None
    folder = write_run(tmp_path / "a")
    first = update_of(page)
    assert [run["rounds"] for run in first["data"]["runs"]] == [[0, 2, 4]]
    assert page.as_json(first["version"]) is None
    assert "connect-src 'self'" in page.as_html()
    assert ">live · &lt;a note&gt;</span>" in page.as_html()
    assert ">0.4000</td>" in page.as_html()
    folder.record([Row(0, 6, 0.2, 0.1, 0.5, 1.0, 0.6, 3, 2, 1.5, 2)])
    second = update_of(page, first["version"])
    assert second["data"]["runs"][0]["rounds"] == [0, 2, 4, 6]
    write_run(tmp_path / "b", "fedavg")
    third = update_of(page, second["version"])
    assert [run["id"] for run in third["data"]["runs"]] == ["a", "b"]
    assert [run["status"] for run in third["data"]["runs"]] == ["running", "running"]
    assert third["state"] == "live"
    finish(RunFolder(tmp_path / "b"))
    assert update_of(page, third["version"])["state"] == "live"
    finish(folder)
    assert update_of(page, third["version"])["state"] == "all runs finished"
    assert 'class="finished" role="status"' in page.as_html()
    assert ">all runs finished · &lt;a note&gt;</span>" in page.as_html()


def test_a_run_without_evaluation_or_with_damage_is_left_out(tmp_path: Path) -> None:
    """A run that has just begun appears with its first evaluation; one that becomes unreadable stays as it was."""
    write_run(tmp_path / "a")
    manifest = {"config": {"rounds": 4, "algorithm": {"name": "fedavg"}}, "seeds": [0], "data": {}}
    RunFolder(tmp_path / "b").begin(manifest, resume=False, force=False)
    page = LivePage([tmp_path], title="t")
    first = update_of(page)
    assert [run["id"] for run in first["data"]["runs"]] == ["a"]
    (tmp_path / "a/metrics.csv").write_text("damaged\n")
    assert [run["rounds"] for run in update_of(page, first["version"])["data"]["runs"]] == [[0, 2, 4]]


def test_only_changed_runs_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish(write_run(tmp_path / "a"))
    folder = write_run(tmp_path / "b", "fedavg")
    read: list[str] = []

    def run_data_and_note(run: RunRecord) -> Any:
        read.append(run.path.name)
        return run_data(run)

    monkeypatch.setattr(live_page, "run_data", run_data_and_note)
    page = LivePage([tmp_path], title="t")
    update_of(page)
    folder.record([Row(0, 6, 0.2, 0.1, 0.5, 1.0, 0.6)])
    update_of(page)
    assert read == ["a", "b", "b"]


def test_server_answers_two_paths(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    (tmp_path / "secret.txt").write_text("secret")
    with served(LivePage([tmp_path], title="t")) as server:
        status, text, headers = ask(server, "/")
        assert status == 200
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "<h1>t</h1>" in text
        status, text, _ = ask(server, "/data.json?version=")
        version = json.loads(text)["version"]
        assert ask(server, f"/data.json?version={version}")[:2] == (204, "")
        for path in ("/secret.txt", "/../secret.txt", "/a/metrics.csv", "//etc/passwd", "/%2e%2e/secret.txt", "/a"):
            status, text, _ = ask(server, path)
            assert (status, text) == (404, "not found\n"), path
        assert ask(server, "/", method="POST")[0] == 501


def test_other_names_of_the_host_are_refused(tmp_path: Path) -> None:
    """A site whose name was rebound to this address sends its own name; IP addresses cannot be rebound."""
    write_run(tmp_path / "a")
    with served(LivePage([tmp_path], title="t")) as server:
        port = server.server_port
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "LOCALHOST"):
            assert ask(server, "/", host=host)[0] == 200, host
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "[",
        ):
            status, text, _ = ask(server, "/data.json", host=host)
            assert status == 421, host
            assert "runs" not in text


def test_a_busy_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"--port {port}: is in use"):
            LiveServer(LivePage([tmp_path], title="t"), host="127.0.0.1", port=port)
        done = fedlatest_here("watch", str(tmp_path), "--port", str(port), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == f"error: --port {port}: is in use; choose another, or 0 for any free port\n"


def test_wrong_arguments_are_one_line(tmp_path: Path) -> None:
    for arguments, answer in (
        (["nowhere"], "nowhere: is not a folder"),
        ([".", "--port", "70000"], "--port 70000: expected"),
        ([".", "--port", "0", "--host", "no such host"], "cannot be used"),
    ):
        done = fedlatest_here("watch", *arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert answer in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_interrupt_ends_the_command(tmp_path: Path) -> None:
    """Ctrl-C ends it with status 0 and one line; a deployment's events are described."""
    write_run(tmp_path / "job/run")
    events: list[dict[str, Any]] = [
        {"event": "job", "rounds": 9},
        {"event": "round", "round": 3},
        {"event": "asked", "clients": ["a", "b"]},
    ]
    text = "".join(json.dumps({"time": "2026-01-01T00:00:00Z", **event}) + "\n" for event in events)
    (tmp_path / "job/events.jsonl").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "fedlatest", "watch", str(tmp_path), "--port", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert process.stdout is not None
    address = process.stdout.readline().split()[1]
    assert address.startswith("http://127.0.0.1:")
    connection = http.client.HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=30)
    connection.request("GET", "/data.json")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert answer["note"] == "deployment: round 3 of 9, 2 clients asked"
    assert answer["data"]["runs"][0]["rounds"] == [0, 2, 4]
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, out, errors) == (0, "stopped\n", "")
