"""Certificates for a moment: an authority, and what it has signed for brokers and clients, as PEM."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, NoEncryption, pkcs12
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Signed:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        of = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        return self.key.private_bytes(*of).decode()

    def write_pem(self, file: Path) -> Path:
        """Key and certificate in one file, as a Java key store of type PEM."""
        file.write_text(self.key_pem() + self.certificate_pem)
        return file

    def write_pkcs12(self, file: Path, password: str, chain: tuple[Signed, ...] = ()) -> Path:
        cas = [signed.certificate for signed in chain]
        encryption = BestAvailableEncryption(password.encode())
        file.write_bytes(pkcs12.serialize_key_and_certificates(b"me", self.key, self.certificate, cas, encryption))
        return file


class Authority:
    """Signs what it is asked to. ``pem``: its own certificate."""

    def __init__(self, name: str = "authority") -> None:
        self.own = _sign(name, None, authority=True)
        self.pem = self.own.certificate_pem

    def sign(self, name: str, days: float = 1) -> Signed:
        """A certificate for this common name, on 127.0.0.1 and localhost."""
        return _sign(name, self.own, days=days)


def _sign(name: str, by: Signed | None, *, authority: bool = False, days: float = 1) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + days * _DAY)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    )
    return Signed(builder.sign(by.key if by else key, hashes.SHA256()), key)
