"""An HTTP server on this machine, so that tests of downloads need no network."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site:
    """The pages of the server by path, and the requests it received."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.num_missing = 0  # bytes at the end of a page that are announced but not sent
        self.headers: dict[str, str] = {}  # sent with every page
        self.url = ""


@contextmanager
def serving() -> Iterator[Site]:
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, site))
    site.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, site: Site, *arguments: object) -> None:
        self.site = site
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.site.requests.append(self.path)
        page = self.site.pages.get(self.path)
        self.send_response(404 if page is None else 200)
        self.send_header("Content-Length", str(len(page or b"")))
        for name, value in self.site.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if page:
            self.wfile.write(page[: len(page) - self.site.num_missing])

    def log_message(self, format: str, *arguments: object) -> None:
        """Do not log."""
