"""Starts nginx with a generated configuration, and sends it requests byte by byte."""

import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedlatest.deployment.process import Process, is_listening
from fedlatest.deployment.proxy_config import CONFIG, Proxy, nginx_program

needs_nginx = pytest.mark.skipif(shutil.which(nginx_program()) is None, reason="nginx is not installed")


@contextmanager
def running_nginx(proxy: Proxy) -> Iterator[None]:
    """Run nginx until the end of the context."""
    command = [nginx_program(), "-p", str(proxy.folder), "-c", CONFIG, "-g", "daemon off;"]
    process = Process(command, log=proxy.folder / "output.log", environment=os.environ)
    try:
        deadline = time.monotonic() + 10
        while not is_listening(proxy.port):
            assert process.alive, process.output()
            assert time.monotonic() < deadline, process.output()
            time.sleep(0.02)
        yield
    finally:
        process.stop()
        process.wait(10)


def request(
    port: int, path: str, *, ca: Path, method: str = "POST", headers: tuple[str, ...] = (), body: bytes = b""
) -> int:
    """Send a request over TLS exactly as given and return the status of the response.

    Args:
        port: The port on 127.0.0.1.
        path: The target in the request line, which is not changed in any way.
        ca: Certificate of the CA to trust.
        method: The method in the request line.
        headers: Headers in addition to, or instead of, Host, Content-Length and Connection.
        body: The body.
    """
    usual = [f"Host: 127.0.0.1:{port}", f"Content-Length: {len(body)}", "Connection: close"]
    given = {header.partition(":")[0] for header in headers}
    kept = [header for header in usual if header.partition(":")[0] not in given]
    lines = [f"{method} {path} HTTP/1.1", *kept, *headers]
    context = ssl.create_default_context(cafile=str(ca))
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        answer = connection.makefile("rb").readline().decode()
    return int(answer.split()[1])
