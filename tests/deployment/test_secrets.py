"""Keys and certificates: accepted by TLS and Flower, private, and never overwritten."""

import ssl
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from socket import create_connection, create_server

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedlatest.deployment.secrets import Secrets, make_secrets
from fedlatest.errors import ConfigError


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    folder = tmp_path_factory.mktemp("secrets") / "new"
    return make_secrets(folder, hosts=["fl.example.org", "10.1.2.3", "::1"], nodes=["node0", "node1"])


def handshake(secrets: Secrets, *, name: str, trust: Path) -> None:
    """Make a TLS handshake over loopback with a client that expects `name`."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(secrets.certificate, secrets.key)
    client = ssl.create_default_context(cafile=str(trust))
    with create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):  # the client raises the error
                server.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with create_connection(listening.getsockname(), timeout=5) as plain:
                client.wrap_socket(plain, server_hostname=name).close()
        finally:
            thread.join()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "fl.example.org", "10.1.2.3"])
def test_the_server_certificate_is_accepted_for_each_of_its_names(secrets: Secrets, name: str) -> None:
    handshake(secrets, name=name, trust=secrets.ca)


def test_another_name_or_another_ca_is_refused(secrets: Secrets, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid for 'elsewhere'"):
        handshake(secrets, name="elsewhere", trust=secrets.ca)
    other = make_secrets(tmp_path / "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(secrets, name="localhost", trust=other.ca)


def test_the_certificate_contains_the_hosts(secrets: Secrets) -> None:
    certificate = x509.load_pem_x509_certificate(secrets.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "fl.example.org"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "10.1.2.3", "::1"]


def test_all_files_are_readable_only_by_their_owner(secrets: Secrets) -> None:
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets.folder.iterdir()} == {0o600}


def test_a_new_folder_is_private_and_the_mode_of_an_existing_one_is_kept(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o755)
    modes = [stat.S_IMODE(make_secrets(tmp_path / name).folder.stat().st_mode) for name in ("new", "old")]
    assert modes == [0o700, 0o755]


def test_node_keys_are_p384_pairs_in_openssh_format(secrets: Secrets) -> None:
    for name in ("node0", "node1"):
        private = load_ssh_private_key(secrets.node_key(name).read_bytes(), None)
        public = load_ssh_public_key(secrets.node_public_key(name).read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert private.curve.name == "secp384r1"
        assert private.public_key() == public
    assert secrets.node_key("node0").read_bytes() != secrets.node_key("node1").read_bytes()


def test_adding_nodes_does_not_change_existing_files(tmp_path: Path) -> None:
    make_secrets(tmp_path, nodes=["node0"])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    secrets = make_secrets(tmp_path, nodes=["node1", "node10", "node2"])
    assert {path: path.read_bytes() for path in before} == before
    assert secrets.nodes == ["node0", "node1", "node2", "node10"]


def test_no_key_is_overwritten(tmp_path: Path) -> None:
    make_secrets(tmp_path, nodes=["node0"])
    with pytest.raises(ConfigError, match=r"node0: exists and is never overwritten"):
        make_secrets(tmp_path, nodes=["node1", "node0"])
    assert not (tmp_path / "node1").exists()
    with pytest.raises(ConfigError, match=r"server.crt: exists and is never overwritten"):
        make_secrets(tmp_path, hosts=["fl.example.org"])


def test_a_deleted_server_certificate_is_replaced_by_the_same_ca(tmp_path: Path) -> None:
    secrets = make_secrets(tmp_path)
    ca = secrets.ca.read_bytes()
    secrets.certificate.unlink()
    secrets.key.unlink()
    make_secrets(tmp_path, hosts=["fl.example.org"])
    assert secrets.ca.read_bytes() == ca
    handshake(secrets, name="fl.example.org", trust=secrets.ca)


@pytest.mark.parametrize("host", ["", "two words", "-x", "http://fl.example.org"])
def test_an_invalid_host_is_refused_and_nothing_is_written(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="neither an IP address nor a host name"):
        make_secrets(tmp_path / "new", hosts=[host])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["", "../node", "a.pub", "server", "-x"])
def test_an_invalid_node_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="a node's name must consist of"):
        make_secrets(tmp_path / "new", nodes=[name])


def test_flower_reads_the_public_key(secrets: Secrets) -> None:
    code = "import sys, pathlib; from flwr.cli.supernode.register import try_load_public_key as load; "
    code += "load(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(secrets.node_public_key("node0"))], check=True, timeout=60)
