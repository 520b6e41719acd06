"""The proxy of a SuperLink: which requests pass, what it refuses, and how its configuration is written."""

import json
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from fedlatest.deployment.process import free_ports
from fedlatest.deployment.proxy import parse_address, write_proxy
from fedlatest.deployment.proxy_config import (
    CLOSED_FLEET_PATHS,
    CONFIG,
    FLEET_PATHS,
    UNIT,
    UPLOAD_PATH,
    Address,
    Proxy,
    nginx_program,
)
from fedlatest.deployment.secrets import Secrets, make_secrets
from fedlatest.errors import ConfigError
from tests.command_line import fedlatest_here
from tests.deployment.proxied_requests import needs_nginx, request, running_nginx

PATHS_OF_FLOWER = """
import json
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES
from flwr.superlink.main import create_app

declared = create_app().openapi()["paths"]
served = [[method.upper(), path] for path, methods in declared.items() for method in methods]
print(json.dumps(served + [list(key) for key in PROTOBUF_REQUEST_TYPES]))
"""


@pytest.fixture(scope="module")
def flower_paths() -> set[tuple[str, str]]:
    """All methods and paths that the SuperLink of the installed Flower serves."""
    done = subprocess.run([sys.executable, "-c", PATHS_OF_FLOWER], capture_output=True, text=True, check=True)
    return {(method, path) for method, path in json.loads(done.stdout.splitlines()[-1])}


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    return make_secrets(tmp_path_factory.mktemp("secrets"), hosts=["fl.example.org", "10.1.2.3"])


class Received(NamedTuple):
    method: str
    path: str
    forwarded_for: str
    num_bytes: int


class Upstream(NamedTuple):
    """A server in place of the SuperLink, and the requests that reached it."""

    port: int
    received: list[Received]


@contextmanager
def upstream_with(secrets: Secrets) -> Iterator[Upstream]:
    received: list[Received] = []

    class Handler(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if self.raw_requestline and self.parse_request():
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                forwarded = ", ".join(self.headers.get_all("X-Forwarded-For", []))
                received.append(Received(self.command, self.path, forwarded, len(body)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:  # a handshake that nginx broke off
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secrets.certificate, secrets.key)
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Upstream(server.server_port, received)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def upstream(secrets: Secrets) -> Iterator[Upstream]:
    with upstream_with(secrets) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(secrets: Secrets, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A running proxy in front of `upstream`, with a limit of 2 MiB for uploads."""
    written = write_proxy(
        tmp_path_factory.mktemp("proxy") / "new", secrets=secrets, listen=["127.0.0.1"], port=free_ports(1)[0],
        superlink=Address("127.0.0.1", upstream.port), max_upload_mib=2,
    )  # fmt: skip
    with running_nginx(written):
        yield written


@pytest.fixture
def received(upstream: Upstream) -> list[Received]:
    upstream.received.clear()
    return upstream.received


def test_the_allow_list_is_the_fleet_api_of_the_installed_flower(flower_paths: set[tuple[str, str]]) -> None:
    """A version of Flower with another path, or another method, for nodes fails here."""
    fleet = {(method, path) for method, path in flower_paths if "fleet" in path.lower()}
    assert fleet == {("POST", path) for path in (*FLEET_PATHS, *CLOSED_FLEET_PATHS)}
    assert not {path for path in FLEET_PATHS if not path.startswith("/v1/fleet/")}
    assert len(flower_paths) > 50, "also the paths for operators and for Flower's own processes"


def test_a_node_with_a_key_uses_only_allowed_paths() -> None:
    """The paths in Flower's client, less those that only a node without a key requests."""
    code = "import inspect, re; from flwr.supernode.fleet_http_client import FleetHttpClient as client; "
    code += "print(*re.findall(r'path=\"(.*?)\"', inspect.getsource(client)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == {*FLEET_PATHS, *CLOSED_FLEET_PATHS}


@needs_nginx
@pytest.mark.parametrize("path", FLEET_PATHS)
def test_requests_of_nodes_pass_unchanged(path: str, proxy: Proxy, secrets: Secrets, received: list[Received]) -> None:
    assert request(proxy.port, path, ca=secrets.ca, body=b"x" * 1000) == 200
    assert received == [Received("POST", path, "127.0.0.1", 1000)]


@needs_nginx
def test_every_other_path_of_flower_is_refused(
    proxy: Proxy, secrets: Secrets, received: list[Received], flower_paths: set[tuple[str, str]]
) -> None:
    refused = {path for _, path in flower_paths} - set(FLEET_PATHS) | {
        "/",
        "/docs",
        "/openapi.json",
        "/v1",
        "/v1/fleet/",
    }
    for path in sorted(refused):
        for method in ("POST", "GET"):
            assert request(proxy.port, path, ca=secrets.ca, method=method) == 404, (method, path)
    assert received == []


CONTROL, NODE = "/v1/control/list-runs", "/v1/fleet/pull-messages"
TRICKS = [
    "/v1/fleet/../control/list-runs", "/v1/fleet/pull-messages/../../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs", "/v1/fleet/..%2fcontrol/list-runs",
    "/v1/fleet/pull-messages%2f..%2f..%2fcontrol%2flist-runs", "//v1/control/list-runs", "/v1//control/list-runs",
    "/v1/control/list-runs/", "/V1/CONTROL/LIST-RUNS", "/v1/%63ontrol/list-runs",
    "/v1/control/list-runs?a=/v1/fleet/pull-messages", "/v1/control/list-runs;/v1/fleet/pull-messages",
    "/v1/control/list-runs#/v1/fleet/pull-messages", "/v1/fleet/pull-messages\\..\\..\\control\\list-runs",
    "/v1/fleet/pull-messages%00/v1/control/list-runs", "https://127.0.0.1/v1/control/list-runs",
    "https://127.0.0.1/v1/fleet/../control/list-runs",
    # paths that nginx, but not Flower, takes for an allowed one, or the other way round
    f"/{NODE}", "/v1//fleet/pull-messages", "/v1/./fleet/pull-messages", "/v1/control/../fleet/pull-messages",
    "/v1/fleet%2fpull-messages", "/v1/fleet/pull%2dmessages", "/v1/fleet/Pull-Messages", "/V1/fleet/pull-messages",
    f"{NODE}/", f"{NODE}?", f"{NODE}?a=b", f"{NODE}#a", f"{NODE}%20", f"{NODE}%0a", f"{NODE}x", f"x{NODE}",
    f"{NODE};a", "*",
]  # fmt: skip


@needs_nginx
@pytest.mark.parametrize("path", TRICKS)
def test_a_path_in_another_form_is_refused(path: str, proxy: Proxy, secrets: Secrets, received: list[Received]) -> None:
    assert request(proxy.port, path, ca=secrets.ca) in (400, 404)
    assert received == []


@needs_nginx
@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "post", "PRI", "X"]
)
def test_another_method_is_refused(method: str, proxy: Proxy, secrets: Secrets, received: list[Received]) -> None:
    assert request(proxy.port, NODE, ca=secrets.ca, method=method) in (400, 404, 405)
    assert received == []


@needs_nginx
def test_headers_do_not_change_the_path(proxy: Proxy, secrets: Secrets, received: list[Received]) -> None:
    headers = (f"X-Original-URL: {CONTROL}", f"X-Rewrite-URL: {CONTROL}", "X-HTTP-Method-Override: GET",
               "X-Forwarded-For: 10.9.9.9", "Upgrade: websocket", "X-Forwarded-Prefix: /v1/control")  # fmt: skip
    assert request(proxy.port, NODE, ca=secrets.ca, headers=headers) == 200
    assert received == [Received("POST", NODE, "127.0.0.1", 0)]
    received.clear()
    assert request(proxy.port, CONTROL, ca=secrets.ca, headers=(f"X-Original-URL: {NODE}",)) == 404
    assert request(proxy.port, NODE, ca=secrets.ca, headers=("Host: elsewhere.example.org",)) == 404
    assert received == []


@needs_nginx
def test_a_second_request_inside_a_body_is_not_passed(proxy: Proxy, secrets: Secrets, received: list[Received]) -> None:
    """Neither with both a length and chunks, which is refused, nor as an ordinary body."""
    inner = f"POST {CONTROL} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode()
    chunked = ("Transfer-Encoding: chunked",)
    assert request(proxy.port, NODE, ca=secrets.ca, headers=chunked, body=b"0\r\n\r\n" + inner) == 400
    assert received == []
    assert request(proxy.port, NODE, ca=secrets.ca, body=inner) == 200
    assert received == [Received("POST", NODE, "127.0.0.1", len(inner))]


@needs_nginx
def test_only_uploads_may_be_large(proxy: Proxy, secrets: Secrets, received: list[Received]) -> None:
    mebibyte = 1 << 20
    assert request(proxy.port, UPLOAD_PATH, ca=secrets.ca, body=bytes(2 * mebibyte)) == 200
    received.clear()
    assert status_of_large(proxy, secrets, UPLOAD_PATH, 2 * mebibyte + 1) == 413
    assert status_of_large(proxy, secrets, NODE, mebibyte + 1) == 413
    assert received == []


def status_of_large(proxy: Proxy, secrets: Secrets, path: str, size: int) -> int:
    """Return the status of a request that only announces its body."""
    return request(proxy.port, path, ca=secrets.ca, headers=(f"Content-Length: {size}",))


@needs_nginx
def test_plain_http_is_refused(proxy: Proxy, received: list[Received]) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
        connection.sendall(f"POST {NODE} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode())
        assert b" 400 " in connection.makefile("rb").readline()
    assert received == []


@needs_nginx
def test_an_upstream_with_the_certificate_of_another_ca_gets_nothing(secrets: Secrets, tmp_path: Path) -> None:
    """Another process on the SuperLink's port, while the SuperLink is down."""
    with upstream_with(make_secrets(tmp_path / "other")) as impostor:
        written = write_proxy(
            tmp_path / "proxy", secrets=secrets, listen=["127.0.0.1"], port=free_ports(1)[0],
            superlink=Address("127.0.0.1", impostor.port),
        )  # fmt: skip
        with running_nginx(written):
            assert request(written.port, NODE, ca=secrets.ca, body=b"secret") == 502
        assert impostor.received == []


@needs_nginx
@pytest.mark.parametrize("name", ["new", "with a space"])
def test_nginx_accepts_the_configuration_without_a_warning(name: str, secrets: Secrets, tmp_path: Path) -> None:
    written = write_proxy(
        tmp_path / name, secrets=secrets, hosts=["fl.example.org", "10.1.2.3"], listen=["127.0.0.1", "::1"],
        port=free_ports(1)[0], superlink=Address("::1", 8000),
    )  # fmt: skip
    done = subprocess.run(
        [nginx_program(), "-p", str(written.folder), "-c", CONFIG, "-t"], capture_output=True, text=True, check=False
    )
    assert "test is successful" in done.stderr
    assert "warn" not in done.stderr


def test_files_are_private_and_replaced_only_on_request(secrets: Secrets, tmp_path: Path) -> None:
    key = secrets.key.stat()
    folder = tmp_path / "proxy"
    write_proxy(folder, secrets=secrets, systemd=True)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in (CONFIG, UNIT)} == {0o600}
    before = (folder / CONFIG).read_bytes()
    with pytest.raises(ConfigError, match=r"nginx.conf: exists; add --force to replace it"):
        write_proxy(folder, secrets=secrets, port=9000)
    assert (folder / CONFIG).read_bytes() == before
    write_proxy(folder, secrets=secrets, port=9000, force=True)
    assert b"listen 0.0.0.0:9000 ssl;" in (folder / CONFIG).read_bytes()
    assert (secrets.key.stat().st_mode, secrets.key.stat().st_mtime) == (key.st_mode, key.st_mtime)


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_with_other_files_is_never_changed(force: bool, secrets: Secrets, tmp_path: Path) -> None:
    (tmp_path / CONFIG).write_text("user www-data;\n")
    tmp_path.chmod(0o755)
    with pytest.raises(ConfigError, match="contains files that `deploy proxy` did not write"):
        write_proxy(tmp_path, secrets=secrets, force=force)
    assert (tmp_path / CONFIG).read_text() == "user www-data;\n"
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is not a folder"):
        write_proxy(tmp_path / "file", secrets=secrets, force=force)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "0"], "port 0: must be from 1 to 65535"),
        (["--port", "65536"], "port 65536: must be from 1 to 65535"),
        (["--port", "8000"], "port 8000: is the SuperLink's"),
        (["--superlink", "127.0.0.1:0"], "superlink: port 0: must be from 1 to 65535"),
        (["--superlink", "127.0.0.1"], "address 127.0.0.1: expected HOST:PORT"),
        (["--superlink", "0.0.0.0:8000"], "superlink 0.0.0.0:8000: must be on loopback"),
        (["--superlink", "fl.example.org:8000"], "superlink fl.example.org:8000: must be on loopback"),
        (["--host", "two words"], "host two words: neither an IP address nor a host name"),
        (["--host", "x;return 200"], "host x;return 200: neither an IP address nor a host name"),
        (["--host", "other.example.org"], "host other.example.org: is not in"),
        (["--listen", "fl.example.org"], "listen fl.example.org: must be an IP address of this machine"),
        (["--max-upload-mib", "0"], "max_upload_mib=0: must be at least 1"),
        (["--max-connections", "0"], "max_connections=0: must be at least 1"),
        (["--secrets", "nothing"], "nothing/ca.crt: cannot be read (No such file or directory); create it with"),
    ],
)
def test_an_invalid_option_is_reported_in_one_line_and_writes_nothing(
    arguments: list[str], message: str, secrets: Secrets, tmp_path: Path
) -> None:
    done = fedlatest_here("deploy", "proxy", "new", "--secrets", str(secrets.folder), *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_missing_and_foreign_keys_are_refused(tmp_path: Path) -> None:
    secrets, other = make_secrets(tmp_path / "a"), make_secrets(tmp_path / "b")
    good = secrets.key.read_bytes()
    secrets.key.write_bytes(other.key.read_bytes())
    with pytest.raises(ConfigError, match=r"server.key: does not belong to .*server.crt"):
        write_proxy(tmp_path / "new", secrets=secrets)
    secrets.key.write_bytes(good)
    secrets.ca.write_bytes(other.ca.read_bytes())
    with pytest.raises(ConfigError, match=r"server.crt: was not signed by .*ca.crt"):
        write_proxy(tmp_path / "new", secrets=secrets)
    secrets.key.write_text("nothing")
    with pytest.raises(ConfigError, match=r"server.key: is not a private key"):
        write_proxy(tmp_path / "new", secrets=secrets)
    secrets.key.unlink()
    with pytest.raises(ConfigError, match=r"server.key: cannot be read \(No such file or directory\)"):
        write_proxy(tmp_path / "new", secrets=secrets)
    secrets.certificate.write_text("nothing")
    with pytest.raises(ConfigError, match=r"server.crt: is not a certificate"):
        write_proxy(tmp_path / "new", secrets=secrets)
    assert not (tmp_path / "new").exists()


def test_a_path_that_nginx_would_interpret_is_refused(tmp_path: Path, secrets: Secrets) -> None:
    for name in ('a"b', "a$b", "a;b", "a\nb", "a{b"):
        with pytest.raises(ConfigError, match="has characters that nginx does not accept"):
            write_proxy(tmp_path / name, secrets=secrets)
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_what_to_run_next(secrets: Secrets, tmp_path: Path) -> None:
    done = fedlatest_here(
        "deploy", "proxy", "new", "--secrets", str(secrets.folder), "--host", "fl.example.org", "--superlink",
        "localhost:8001", "--systemd", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0
    assert "flower-superlink --host 127.0.0.1 --port 8001 " in done.stdout
    assert " --enable-supernode-auth " in done.stdout
    assert f" -p {tmp_path / 'new'} -c nginx.conf\n" in done.stdout
    assert "flower-supernode --superlink fl.example.org:8443 --root-certificates ca.crt " in done.stdout
    unit = (tmp_path / "new" / UNIT).read_text()
    assert f'-p "{tmp_path / "new"}" -c nginx.conf -g "daemon off;"\n' in unit


@pytest.mark.parametrize(("text", "address"), [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:80", ("::1", 80))])
def test_addresses_are_parsed_and_printed(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert str(parse_address(text)) == text
