"""A reverse proxy (nginx) in front of a SuperLink, which passes only the requests of nodes.

Flower serves nodes, operators and its own processes on one port, and checks only the keys of nodes. So the SuperLink
listens on loopback, where operators use it, and nginx listens for nodes. It passes a request only if its raw request
line is a POST to one of `FLEET_PATHS`, and sends the SuperLink that path and no other.

Node authentication works through the proxy: a node signs a timestamp, not the connection or the host name. Flower
checks node keys only with TLS, so nginx also uses TLS to the SuperLink, and verifies its certificate.
"""

import ipaddress
import os
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedlatest.deployment.proxy_config import CONFIG, MARK, UNIT, Address, Proxy, nginx_config, systemd_unit
from fedlatest.deployment.secrets import Secrets
from fedlatest.errors import ConfigError
from fedlatest.files import write_atomically

SUPERLINK = Address("127.0.0.1", 8000)
_HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_SAFE_PATH = re.compile(r"/[\w./+@=,~ -]*")  # no character that has a meaning in a quoted string of nginx or systemd


def write_proxy(
    folder: Path,
    *,
    secrets: Secrets,
    hosts: Sequence[str] = (),
    listen: Sequence[str] = ("0.0.0.0",),
    port: int = 8443,
    superlink: Address = SUPERLINK,
    max_upload_mib: int = 16,
    max_connections: int = 256,
    systemd: bool = False,
    force: bool = False,
) -> Proxy:
    """Write the configuration of nginx, and a systemd unit on request.

    Args:
        folder: nginx's prefix: a new or empty folder, or with `force` one that was written before.
        secrets: The certificates and keys of the federation, which are used where they are.
        hosts: Names and addresses by which nodes reach the proxy, all of them in the server certificate. By default all
            that are in the certificate.
        listen: Addresses of this machine on which nginx listens.
        port: The port on which nginx listens.
        superlink: Address of the SuperLink, on loopback.
        max_upload_mib: Largest request in MiB; Flower divides arrays into parts of 5 MiB.
        max_connections: Largest number of simultaneous connections from one address.
        systemd: Also write a systemd unit.
        force: Replace files of an earlier call.

    Raises:
        ConfigError: An argument is invalid, a certificate or key is missing or does not fit, the folder contains
            something else, or it cannot be written.
    """
    _check_ports(port, superlink)
    _check_positive("max_upload_mib", max_upload_mib)
    _check_positive("max_connections", max_connections)
    if not listen:
        raise ConfigError("listen: at least one address is needed, such as 0.0.0.0")
    addresses = [_ip_address("listen", address) for address in listen]
    secrets = Secrets(secrets.folder.absolute())
    names = _checked_certificate(secrets)
    hosts = tuple(dict.fromkeys(hosts or names))
    for host in hosts:
        _check_host(host, names, secrets.certificate)
    if superlink.host == "localhost":  # nginx would use its IPv6 address, too, where the SuperLink does not listen
        superlink = Address("127.0.0.1", superlink.port)
    proxy = Proxy(folder.absolute(), secrets, hosts, port, superlink)
    for path in (proxy.folder, secrets.folder):
        _check_path(path)
    texts = {CONFIG: nginx_config(proxy, addresses, max_upload_mib=max_upload_mib, max_connections=max_connections)}
    if systemd:
        texts[UNIT] = systemd_unit(proxy.folder)
    _prepare(proxy.folder, texts, force=force)
    for name, text in texts.items():
        path = proxy.folder / name
        write_atomically(path, partial(_write_private, text=text), mode=0o600, error=ConfigError)
    return proxy


def parse_address(text: str) -> Address:
    """Parse HOST:PORT, with an IPv6 address in brackets.

    Raises:
        ConfigError: It has another form.
    """
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\[\]]+)):([0-9]{1,5})", text)
    if not found:
        raise ConfigError(f"address {text}: expected HOST:PORT, such as 127.0.0.1:8000")
    return Address(found[1] or found[2], int(found[3]))


def _check_ports(port: int, superlink: Address) -> None:
    for name, value in (("port", port), ("superlink: port", superlink.port)):
        if not 1 <= value <= 65535:
            raise ConfigError(f"{name} {value}: must be from 1 to 65535")
    if port == superlink.port:
        raise ConfigError(f"port {port}: is the SuperLink's; choose another port for nodes")
    loopback = superlink.host == "localhost"
    if not loopback:
        try:
            loopback = ipaddress.ip_address(superlink.host).is_loopback
        except ValueError:
            loopback = False
    if not loopback:
        raise ConfigError(
            f"superlink {superlink}: must be on loopback, such as 127.0.0.1:8000; "
            "anyone who can reach it can run code at the server"
        )


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise ConfigError(f"{name}={value}: must be at least 1")


def _ip_address(name: str, text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ConfigError(f"{name} {text}: must be an IP address of this machine, such as 0.0.0.0") from None


def _checked_certificate(secrets: Secrets) -> list[str]:
    """Return the names and addresses in the server certificate, after checking it, its key and its CA."""
    ca, certificate = _read_certificate(secrets.ca), _read_certificate(secrets.certificate)
    try:
        key = load_pem_private_key(_read(secrets.key), None)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{secrets.key}: is not a private key without a password ({error})") from error
    if key.public_key() != certificate.public_key():
        raise ConfigError(f"{secrets.key}: does not belong to {secrets.certificate}")
    try:
        certificate.verify_directly_issued_by(ca)
    except Exception as error:  # cryptography raises one of four types
        raise ConfigError(f"{secrets.certificate}: was not signed by {secrets.ca}") from error
    if certificate.not_valid_after_utc < datetime.now(UTC):
        raise ConfigError(
            f"{secrets.certificate}: expired at {certificate.not_valid_after_utc:%Y-%m-%d}; delete it and server.key, "
            "and create new ones with `fedlatest deploy keys`"
        )
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise ConfigError(f"{secrets.certificate}: contains no host names") from None
    found = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    if "localhost" not in found:
        raise ConfigError(
            f"{secrets.certificate}: lacks localhost, by which nginx verifies the SuperLink; "
            "create it with `fedlatest deploy keys`"
        )
    return found


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(_read(path))
    except ValueError as error:
        raise ConfigError(f"{path}: is not a certificate ({error})") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); create it with `fedlatest deploy keys`"
        ) from error


def _check_host(host: str, names: Sequence[str], certificate: Path) -> None:
    """Raise ConfigError if nodes could not verify the server under this name."""
    try:
        host, valid = str(ipaddress.ip_address(host)), True
    except ValueError:
        valid = _HOST_NAME.fullmatch(host) is not None
    if not valid:
        raise ConfigError(f"host {host}: neither an IP address nor a host name such as fl.example.org")
    wildcard = "*." + host.partition(".")[2]
    if host.lower() not in [name.lower() for name in names] and wildcard not in names:
        raise ConfigError(
            f"host {host}: is not in {certificate}, which has {', '.join(names)}; "
            f"create a certificate with `fedlatest deploy keys FOLDER --host {host}`"
        )


def _check_path(path: Path) -> None:
    if not _SAFE_PATH.fullmatch(str(path)):
        raise ConfigError(f"{path}: has characters that nginx does not accept in a path; choose another folder")


def _prepare(folder: Path, names: Collection[str], *, force: bool) -> None:
    """Create the folder, or check that only files of an earlier call would be replaced."""
    try:
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder}: is not a folder; choose another one")
        existing = [folder / name for name in names if (folder / name).exists()]
        ours = (folder / CONFIG).exists() and (folder / CONFIG).read_text(encoding="utf-8").startswith(MARK)
        if folder.exists() and any(folder.iterdir()) and not ours:
            raise ConfigError(f"{folder}: contains files that `deploy proxy` did not write; choose a new folder")
        if existing and not force:
            raise ConfigError(f"{existing[0]}: exists; add --force to replace it, or choose a new folder")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        (folder / "temp").mkdir(exist_ok=True, mode=0o700)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{folder}: cannot be used ({error}); choose another folder") from error


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from the beginning."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
