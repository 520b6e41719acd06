"""Serves a live page over HTTP.

The server answers `/` (the page) and `/data.json` (changes), both computed in memory. It reads no path from a request,
so it cannot be made to serve another file. Requests must name the server by an IP address, `localhost` or the name of
the machine: a page from elsewhere that rebinds its own name to this address (DNS rebinding) is refused.
"""

import errno
import socket
import sys
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

from fedlatest.errors import ConfigError
from fedlatest.report.live_page import LivePage

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
SECONDS_PER_REQUEST = 30  # an idle connection is closed after this time


class LiveServer(ThreadingHTTPServer):
    """A server of one page.

    Args:
        page: The page.
        host: The address to listen on.
        port: The port to listen on; 0 for any that is free.

    Raises:
        ConfigError: If the address cannot be used.
    """

    daemon_threads = True

    def __init__(self, page: LivePage, *, host: str, port: int) -> None:
        self.page = page
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ConfigError(f"--port {port}: is in use; choose another, or 0 for any free port") from error
            raise ConfigError(f"--host {host} --port {port}: cannot be used ({error.strerror or error})") from error
        except OverflowError:
            raise ConfigError(f"--port {port}: expected a number from 0 to 65535") from None

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self.server_address[:2]
        name = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/"

    def server_bind(self) -> None:
        """Bind without looking up the name of the host, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connections that the browser closed; print other errors."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    server_version, sys_version = "fedlatest", ""
    timeout = SECONDS_PER_REQUEST

    def do_GET(self) -> None:
        if not is_allowed_host(self.headers.get_all("Host") or []):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "this server is not known by that name\n")
            return
        address = urlsplit(self.path)
        if address.path == "/":
            self._answer(HTTPStatus.OK, "text/html", self.server.page.as_html())
        elif address.path == "/data.json":
            [version, *_] = parse_qs(address.query).get("version", [""])
            content = self.server.page.as_json(version)
            if content is None:
                self._answer(HTTPStatus.NO_CONTENT, "application/json", "")
            else:
                self._answer(HTTPStatus.OK, "application/json", content)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "not found\n")

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Do not log requests."""


def is_allowed_host(values: list[str]) -> bool:
    """Return whether a request's Host header names this machine in a way that no other site can use.

    >>> [is_allowed_host([name]) for name in ("127.0.0.1:8765", "localhost", "[::1]:80", "evil.example", "")]
    [True, True, True, False, False]
    """
    if len(values) != 1:
        return False
    try:
        name = urlsplit(f"//{values[0]}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", socket.gethostname().lower()):
        return True
    with suppress(ValueError):
        ip_address(name)
        return True
    return False
