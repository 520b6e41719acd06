"""X.509: a certificate authority of one's own, and the certificate it signs for the server."""

import datetime
import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
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
