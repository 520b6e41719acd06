"""Ports of this machine that nobody uses."""

import random
import socket
from contextlib import closing

from fedlatest.errors import DeploymentError

HOST = "127.0.0.1"
_RANGE = range(20000, 32000)  # below what systems hand out to outgoing connections, so it stays free across a restart


def free_ports(count: int) -> list[int]:
    """So many different ports that can be listened to now."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_RANGE, len(_RANGE)):
        if len(found) == count:
            break
        with closing(socket.socket()) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
    if len(found) < count:
        raise DeploymentError(f"{count} ports are needed on {HOST}, {len(found)} are free; use fewer nodes")
    return found


def answers(port: int) -> bool:
    """Whether somebody listens there."""
    with closing(socket.socket()) as trial:
        trial.settimeout(1.0)
        return trial.connect_ex((HOST, port)) == 0
