"""What an encrypted federation needs: a CA, the server's certificate, and a key pair for each node.

`cryptography` makes all of it (Flower depends on it), so neither openssl nor ssh-keygen has to be there. Private keys
are readable by their owner alone, and none is ever overwritten.
"""

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedlatest.errors import ConfigError

_SERVER_DAYS = 825  # the longest that common TLS clients accept for a server's certificate
_CA_DAYS = 3650
_CLOCKS_DIFFER = datetime.timedelta(hours=1)


class Signer(NamedTuple):
    """A certificate authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def authority(name: str) -> Signer:
    """A new certificate authority that signs itself."""
    key = ec.generate_private_key(ec.SECP384R1())
    builder = (
        _builder(name, key, _CA_DAYS)
        .issuer_name(_subject(name))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    )
    return Signer(builder.sign(key, hashes.SHA384()), key)


def server_certificate(
    signer: Signer, names: Sequence[x509.GeneralName]
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate for a server that is known by these names, and its private key."""
    key = ec.generate_private_key(ec.SECP384R1())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    builder = (
        _builder("fedlatest server", key, _SERVER_DAYS)
        .issuer_name(signer.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(identifier, critical=False)
    )
    return builder.sign(signer.key, hashes.SHA384()), key


def general_name(host: str) -> x509.GeneralName:
    """A host's name or address as certificates hold it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not re.fullmatch(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", host):
            raise ConfigError(f"host {host}: neither an address nor a host's name, such as fl.example.org") from None
        return x509.DNSName(host)


def _builder(name: str, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
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


LOOPBACK = ("localhost", "127.0.0.1")
_OWN = ("ca", "server")  # names of files that no node may take


class Secrets(NamedTuple):
    """Where the keys and certificates of a federation lie."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The CA's certificate: what nodes and operators trust."""
        return self.folder / "ca.crt"

    @property
    def ca_key(self) -> Path:
        """The CA's private key: only to sign another server certificate."""
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
        """A node's private key."""
        return self.folder / name

    def node_public_key(self, name: str) -> Path:
        """A node's public key: what is registered at the server."""
        return self.folder / f"{name}.pub"

    @property
    def nodes(self) -> list[str]:
        """The nodes that have a key."""
        return sorted((path.stem for path in self.folder.glob("*.pub")), key=lambda name: (len(name), name))


def make_secrets(folder: Path, *, hosts: Sequence[str] = (), nodes: Sequence[str] = ()) -> Secrets:
    """Make what is missing: CA and server certificate once, and a key pair for each of the nodes.

    `hosts` are names and addresses by which nodes reach the server, beside localhost and 127.0.0.1. A second call adds
    nodes; to replace a node's key, or to name hosts for a certificate that is there, is an error.
    """
    secrets = Secrets(folder)
    names = [general_name(host) for host in dict.fromkeys([*LOOPBACK, *hosts])]
    for node in nodes:
        _check_name(node)
        _refuse_to_replace(secrets.node_key(node), secrets.node_public_key(node))
    server_is_there = secrets.certificate.exists() and secrets.key.exists()
    if hosts or not server_is_there:
        _refuse_to_replace(secrets.certificate, secrets.key)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not server_is_there:
            _make_server(secrets, names)
        for node in nodes:
            _make_node(secrets, node)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written to ({error.strerror}); choose another folder") from error
    return secrets


def _make_server(secrets: Secrets, names: Sequence[x509.GeneralName]) -> None:
    if secrets.ca.exists() or secrets.ca_key.exists():
        signer = _read_signer(secrets)
    else:
        signer = authority("fedlatest CA")
        _write_private(secrets.ca_key, _pem(signer.key))
        secrets.ca.write_bytes(signer.certificate.public_bytes(serialization.Encoding.PEM))
    certificate, key = server_certificate(signer, names)
    _write_private(secrets.key, _pem(key))
    secrets.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _read_signer(secrets: Secrets) -> Signer:
    try:
        key = serialization.load_pem_private_key(secrets.ca_key.read_bytes(), None)
        certificate = x509.load_pem_x509_certificate(secrets.ca.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{secrets.ca}: no CA to sign with ({error}); choose a new folder") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{secrets.ca_key}: not a CA's key that fedlatest made; choose a new folder")
    return Signer(certificate, key)


def _make_node(secrets: Secrets, name: str) -> None:
    """An ECDSA P-384 pair in OpenSSH's formats, as `flower-supernode` and `flwr supernode register` read them."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    _write_private(secrets.node_key(name), private)
    secrets.node_public_key(name).write_bytes(public + f" {name}\n".encode())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_private(path: Path, content: bytes) -> None:
    """Never readable by others, not even for a moment, and never over something that is there."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name) or name in _OWN:
        raise ConfigError(f"node {name}: a node's name is letters, digits, - and _, and not {' or '.join(_OWN)}")


def _refuse_to_replace(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise ConfigError(f"{path}: is there and is never overwritten; choose a new folder or delete it yourself")
