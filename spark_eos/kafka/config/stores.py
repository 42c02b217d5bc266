"""Java's PKCS12 stores, converted to PEM in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spark_eos.errors import EosError, invalid_option, stop, unsupported_option

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM = b"-----BEGIN"


@dataclass(frozen=True)
class _Store:
    """A store as PEM: the key's certificate with its chain, all other certificates, and the key, if there is one."""

    chain: str
    key: str | None = field(repr=False)


def certificates_unusable(error: Exception, options: str = "kafka.ssl.*") -> EosError:
    return invalid_option(
        options,
        f"set to certificates that cannot be loaded: {error}",
        "files that exist, are in PEM format or PKCS12 stores, and can be read on this machine",
    )


def without_stores(user: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with PEM instead of stores, for clients that read only PEM.

    Raises OptionError for a store that cannot be read; OSError for a missing one.
    """
    result = dict(user)
    trusted, own = (
        (result.pop(f"ssl.{store}.location", None), result.pop(f"ssl.{store}.password", None))
        for store in ("truststore", "keystore")
    )
    if trusted[0] is not None:
        found = _read("truststore", trusted[0], trusted[1])
        result |= {"ssl.ca.location": trusted[0]} if found is None else {"ssl.ca.pem": found.chain}
    if own[0] is not None:
        found = _read("keystore", own[0], own[1])
        if found is None:
            result |= {"ssl.certificate.location": own[0], "ssl.key.location": own[0]}
        elif found.key is None:
            raise invalid_option(
                "kafka.ssl.keystore.location",
                f"{own[0]}, which cannot be read: it holds no key",
                "the store that has the client's key",
            )
        else:
            result |= {"ssl.certificate.pem": found.chain, "ssl.key.pem": found.key}
            result.pop("ssl.key.password", None)  # Java's name for that of the key in the store
    return result


def _read(what: str, location: str, password: str | None) -> _Store | None:
    """Return the store; None for a PEM file."""
    data = Path(location).read_bytes()
    if _PEM in data:
        return None
    if data.startswith(_JKS):
        raise unsupported_option(
            f"kafka.ssl.{what}.location",
            f"{location}, a {what} in Java's own format (JKS)",
            (
                f"PEM or PKCS12: keytool -importkeystore -srckeystore {location} -destkeystore {location}.p12 "
                f"-deststoretype PKCS12 converts it; then set kafka.ssl.{what}.location={location}.p12"
            ),
        )
    return _read_pkcs12(what, location, data, password)


def _read_pkcs12(what: str, location: str, data: bytes, password: str | None) -> _Store:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise stop(
            "EOS_OPTION_UNSUPPORTED.package",
            option=f"kafka.ssl.{what}.location",
            given="a store of type PKCS12",
            package="cryptography",
            extra="pkcs12",
        ) from None
    try:
        loaded = pkcs12.load_pkcs12(data, password.encode() if password is not None else None)
    except ValueError:
        raise invalid_option(
            f"kafka.ssl.{what}.location",
            f"{location}, which cannot be read: the password is wrong, or the file is not a store",
            (
                f"the right kafka.ssl.{what}.password; keytool -list -keystore {location} shows whether the file "
                "is a store"
            ),
        ) from None
    certificates = [loaded.cert, *loaded.additional_certs] if loaded.cert is not None else loaded.additional_certs
    chain = "".join(known.certificate.public_bytes(Encoding.PEM).decode() for known in certificates)
    key = None
    if loaded.key is not None:
        key = loaded.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    if not chain:
        raise invalid_option(
            f"kafka.ssl.{what}.location",
            f"{location}, which cannot be read: it holds no certificate",
            "the store that has certificates",
        )
    return _Store(chain, key)
