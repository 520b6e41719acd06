"""The certificates and keys of a federation: a CA, the server's certificate, and a key pair for each node.

The package `cryptography`, which Flower requires, creates them; openssl and ssh-keygen are not needed. All files are
readable only by their owner, and none is ever overwritten.
"""

import datetime
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedlatest.deployment import private_files
from fedlatest.errors import ConfigError

_SERVER_DAYS = 825  # the longest validity of a server certificate that common TLS clients accept
_CA_DAYS = 3650
_CLOCK_DIFFERENCE = datetime.timedelta(hours=1)  # between two machines
LOOPBACK = ("localhost", "127.0.0.1")
_RESERVED = ("ca", "server")  # file names that a node cannot use


class Secrets(NamedTuple):
    """The paths of the keys and certificates of a federation."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The CA's certificate, which nodes and operators trust."""
        return self.folder / "ca.crt"

    @property
    def ca_key(self) -> Path:
        """The CA's private key, needed only to sign another server certificate."""
        return self.folder / "ca.key"

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.folder / "server.crt"

    @property
    def key(self) -> Path:
        """The server's private key."""
        return self.folder / "server.key"

    def node_key(self, name: str) -> Path:
        """Return the path of a node's private key."""
        return self.folder / name

    def node_public_key(self, name: str) -> Path:
        """Return the path of a node's public key, which is registered at the server."""
        return self.folder / f"{name}.pub"

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes that have a key."""
        return sorted((path.stem for path in self.folder.glob("*.pub")), key=lambda name: (len(name), name))


def make_secrets(folder: Path, *, hosts: Sequence[str] = (), nodes: Sequence[str] = ()) -> Secrets:
    """Create the CA and the server certificate if they do not exist, and a key pair for each of the nodes.

    Args:
        folder: Where the files are written.
        hosts: Names and addresses by which nodes reach the server, in addition to localhost and 127.0.0.1.
        nodes: Names of the nodes to add.

    Raises:
        ConfigError: A file would be overwritten (the key of a node, or the server certificate if `hosts` are given), a
            name is not valid, or the folder cannot be written.
    """
    secrets = Secrets(folder)
    names = [_general_name(host) for host in dict.fromkeys([*LOOPBACK, *hosts])]
    for node in nodes:
        _check_name(node)
        _check_not_existing(secrets.node_key(node), secrets.node_public_key(node))
    server_exists = secrets.certificate.exists() and secrets.key.exists()
    if hosts or not server_exists:
        _check_not_existing(secrets.certificate, secrets.key)
    try:
        if not folder.is_dir():
            private_files.make_folder(folder)
        if not server_exists:
            _make_server(secrets, names)
        for node in nodes:
            _make_node(secrets, node)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from error
    return secrets


class _Authority(NamedTuple):
    """A certificate authority (CA)."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def _make_server(secrets: Secrets, names: Sequence[x509.GeneralName]) -> None:
    if secrets.ca.exists() or secrets.ca_key.exists():
        authority = _read_authority(secrets)
    else:
        authority = _create_authority("fedlatest CA")
        private_files.write(secrets.ca_key, _pem(authority.key), new=True)
        private_files.write(secrets.ca, authority.certificate.public_bytes(serialization.Encoding.PEM))
    certificate, key = _server_certificate(authority, names)
    private_files.write(secrets.key, _pem(key), new=True)
    private_files.write(secrets.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _read_authority(secrets: Secrets) -> _Authority:
    try:
        key = serialization.load_pem_private_key(secrets.ca_key.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(secrets.ca.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{secrets.ca}: the CA cannot be read ({error}); choose a new folder") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{secrets.ca_key}: is not a CA key that fedlatest created; choose a new folder")
    return _Authority(certificate, key)


def _make_node(secrets: Secrets, name: str) -> None:
    """Create an ECDSA P-384 pair in OpenSSH format, for `flower-supernode` and `flwr supernode register`."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    private_files.write(secrets.node_key(name), private, new=True)
    private_files.write(secrets.node_public_key(name), public + f" {name}\n".encode())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or name in _RESERVED:
        raise ConfigError(
            f"node {name}: a node's name must consist of letters, digits, - and _, and not be {' or '.join(_RESERVED)}"
        )


def _check_not_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise ConfigError(f"{path}: exists and is never overwritten; choose a new folder or delete it")


def _create_authority(name: str) -> _Authority:
    """Create a CA with a self-signed certificate."""
    key = ec.generate_private_key(ec.SECP384R1())
    builder = (
        _builder(name, key, _CA_DAYS)
        .issuer_name(_subject(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    )
    return _Authority(builder.sign(key, hashes.SHA384()), key)


def _server_certificate(
    authority: _Authority, names: Sequence[x509.GeneralName]
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Create a certificate for a server with these names, and its private key."""
    key = ec.generate_private_key(ec.SECP384R1())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder("fedlatest server", key, _SERVER_DAYS)
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(identifier, critical=False)
    )
    return builder.sign(authority.key, hashes.SHA384()), key


def _general_name(host: str) -> x509.GeneralName:
    """Convert a host name or an IP address to the form used in certificates."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not re.fullmatch(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
            raise ConfigError(f"host {host}: neither an IP address nor a host name such as fl.example.org") from None
        return x509.DNSName(host)


def _builder(name: str, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_DIFFERENCE)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
