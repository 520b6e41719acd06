"""A SuperLink on loopback behind nginx: a node completes a run, and a stranger with the CA certificate gets nowhere.

The stranger makes the same requests at the proxy and, as a control, at the SuperLink's own port, where they succeed:
the refusals are due to the proxy.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fedlatest.deployment.flwr_cli import CONNECTION, environment, flwr, program, write_connection
from fedlatest.deployment.node import Node
from fedlatest.deployment.process import free_ports, is_listening, run_command, stop_all
from fedlatest.deployment.proxy import write_proxy
from fedlatest.deployment.proxy_config import Address, Proxy
from fedlatest.deployment.secrets import Secrets, make_secrets
from fedlatest.deployment.superlink import Run, SuperLink
from fedlatest.errors import DeploymentError
from tests.deployment.marked_processes import MARK, listening_addresses, marked
from tests.deployment.proxied_requests import needs_nginx, request, running_nginx

pytestmark = [pytest.mark.slow, needs_nginx, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

APP = Path(__file__).parent / "stub_app"


class Federation(NamedTuple):
    folder: Path
    secrets: Secrets
    superlink: SuperLink
    proxy: Proxy


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A SuperLink and nginx; the key of node0 is registered. No process is left at the end."""
    folder = tmp_path_factory.mktemp("federation")
    link_port, port = free_ports(2)
    secrets = make_secrets(folder / "secrets", nodes=["node0", "unregistered", "stranger"])
    proxy = write_proxy(
        folder / "proxy", secrets=secrets, hosts=["127.0.0.1"], listen=["127.0.0.1"], port=port,
        superlink=Address("127.0.0.1", link_port),
    )  # fmt: skip
    superlink = SuperLink(folder / "superlink", port=link_port, secrets=secrets, log=folder / "superlink.log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, str(folder))
        try:
            with running_nginx(proxy):
                superlink.wait_until_ready()
                superlink.register("node0")
                yield Federation(folder, secrets, superlink, proxy)
        finally:
            if superlink.process is not None:
                stop_all([superlink.process])
    assert marked(str(folder)) == []
    assert not is_listening(port), "nginx has ended"


def node(federation: Federation, name: str) -> Node:
    """Make a node that reaches the SuperLink through the proxy."""
    return Node(
        name, federation.folder / name, superlink=f"127.0.0.1:{federation.proxy.port}", port=free_ports(1)[0],
        secrets=federation.secrets, log=federation.folder / f"{name}.log", config={},
    )  # fmt: skip


def test_a_node_completes_a_run_through_the_proxy(federation: Federation) -> None:
    """The operator submits it on loopback; each round with a reply adds 1 to a vector, so after 2 rounds it is 2."""
    job = federation.folder / "job"
    job.mkdir()
    client = node(federation, "node0")
    client.bring_online()
    try:
        wait_for_state(client, "online")
        run = Run(federation.superlink, APP, config={"rounds": 2, "job": str(job)}, log=federation.folder / "run.log")
        code = run.process.wait(120)
        assert run.status().status == "finished:completed", (code, run.process.output())
    finally:
        stop(client)
    state = json.loads((job / "state.json").read_text())
    assert (state["round"], state["x"]) == (2, [2.0] * 4)
    assert [name for _, name, _, _ in json.loads((job / "nodes.json").read_text())] == ["node0"]


def test_a_node_with_an_unregistered_key_is_refused(federation: Federation) -> None:
    client = node(federation, "unregistered")
    client.bring_online()
    try:
        wait_for_state(client, "refused")
    finally:
        stop(client)
    assert "Failed to initialize the connection" in client.last_output
    assert "SuperNode ID:" not in client.log.read_text()


def wait_for_state(client: Node, state: str) -> None:
    deadline = time.monotonic() + 60
    while client.state != state:
        assert time.monotonic() < deadline, client.log.read_text()
        client.ensure_running()
        time.sleep(0.1)


def stop(client: Node) -> None:
    if client.process is not None:
        stop_all([client.process])


def stranger(federation: Federation, address: str) -> Path:
    """Return the configuration folder of somebody who trusts the CA and knows the address."""
    home = federation.folder / f"stranger-{address.rpartition(':')[2]}"
    write_connection(home, address=address, root_certificates=federation.secrets.ca)
    return home


def submit(home: Path) -> bool:
    """Submit an app with `flwr run` and return whether the SuperLink has accepted it."""
    command = [program("flwr"), "run", str(APP), CONNECTION, "-c", 'job="/nonexistent"']
    done = run_command(command, environment=environment(home), timeout=120)
    return "Successfully started run" in done.stdout + done.stderr


def test_a_stranger_cannot_list_register_or_submit_through_the_proxy(federation: Federation) -> None:
    """All three succeed at the SuperLink's own port, with the same configuration but for the port."""
    key = str(federation.secrets.node_public_key("stranger"))
    outside = stranger(federation, f"127.0.0.1:{federation.proxy.port}")
    inside = stranger(federation, federation.superlink.address)
    before = flwr("list", CONNECTION, home=inside)["runs"]
    for arguments in (
        ["list", CONNECTION],
        ["supernode", "register", key, CONNECTION, "--name", "stranger"],
        ["supernode", "list", CONNECTION],
    ):
        with pytest.raises(DeploymentError, match=r"failed; its output was"):
            flwr(*arguments, home=outside)
    assert not submit(outside)
    assert flwr("list", CONNECTION, home=inside)["runs"] == before, "the proxy has let nothing through"
    assert len(flwr("supernode", "list", CONNECTION, home=inside)["nodes"]) == 1, "only node0 is registered"

    flwr("supernode", "register", key, CONNECTION, "--name", "stranger", home=inside)
    assert len(flwr("supernode", "list", CONNECTION, home=inside)["nodes"]) == 2
    assert submit(inside)
    assert len(flwr("list", CONNECTION, home=inside)["runs"]) == len(before) + 1
    federation.superlink.stop_runs()


@pytest.mark.parametrize("path", ["/health", "/openapi.json", "/docs"])
def test_raw_requests_are_refused_only_by_the_proxy(path: str, federation: Federation) -> None:
    link_port = int(federation.superlink.address.rpartition(":")[2])
    assert request(link_port, path, ca=federation.secrets.ca, method="GET") == 200
    assert request(federation.proxy.port, path, ca=federation.secrets.ca, method="GET") == 404


def test_a_request_without_a_signature_reaches_the_superlink_and_is_refused_there(federation: Federation) -> None:
    headers = ("Content-Type: application/protobuf",)
    for port in (federation.proxy.port, int(federation.superlink.address.rpartition(":")[2])):
        assert request(port, "/v1/fleet/pull-messages", ca=federation.secrets.ca, headers=headers) == 401


def test_the_processes_of_the_superlink_listen_only_on_loopback(federation: Federation) -> None:
    """A SuperLink that opened another port to the network would make the proxy useless."""
    assert listening_addresses(str(federation.folder)) == [federation.superlink.address]
