"""TLS for the own client: the user's certificates, read again when their files have changed."""

from __future__ import annotations

import contextlib
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from spark_eos.errors import OptionError, missing_option, unsupported_option
from spark_eos.kafka.config.memory_file import memory_file
from spark_eos.kafka.config.stores import without_stores
from spark_eos.kafka.config.values import boolean, enumerated

_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.crl.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.truststore.location",
)
#: librdkafka's name for the system's certificates.
_SYSTEMS = "probe"
#: A file's modification time, size and inode.
_Stamp = tuple[int, int, int]


class Tls:
    """The ``ssl.*`` properties, by librdkafka's names and, for stores, Java's."""

    def __init__(self, user: Mapping[str, str]) -> None:
        self._user = {key: value for key, value in user.items() if "ssl." in key}
        self._context: ssl.SSLContext | None = None
        self._stamps: list[_Stamp] = []
        self._lock = threading.Lock()

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection. Certificates that were replaced since the last one are read again.

        Raises OSError, also while certificate and key do not match, as during their replacement; OptionError for a
        store that cannot be used.
        """
        with self._lock:
            stamps = self._stamps_now()
            if self._context is None:
                self._context, self._stamps = _load(self._user), stamps
            elif stamps != self._stamps:
                try:
                    self._context, self._stamps = _load(self._user), stamps
                except OptionError as error:  # the store may be half written; the next connection reads it again
                    raise OSError(error.message) from None
            return self._context

    def _stamps_now(self) -> list[_Stamp]:
        """Return the stamps of all files; links are followed, as mounted secrets are replaced by changing a link."""
        left_out = {"ssl.ca.location"} if self._user.get("ssl.ca.location") == _SYSTEMS else set()
        stats = (Path(self._user[name]).stat() for name in _FILES if name in self._user.keys() - left_out)
        return [(file.st_mtime_ns, file.st_size, file.st_ino) for file in stats]


def context_trusting(location: str | None, pem: str | None) -> ssl.SSLContext:
    """Return a client's context that trusts the authorities of a file, of a folder or of a PEM, else the system's.

    Raises OSError if they cannot be loaded.
    """
    location = None if location == _SYSTEMS else location
    is_folder = location is not None and Path(location).is_dir()
    context = ssl.create_default_context(
        cafile=None if is_folder else location, capath=location if is_folder else None, cadata=pem
    )
    # As Java and librdkafka: a trusted certificate need not be the root of a chain, and old tools may have made it.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if location is not None or pem is not None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _load(given: Mapping[str, str]) -> ssl.SSLContext:
    user = without_stores(given)
    context = context_trusting(user.get("ssl.ca.location"), user.get("ssl.ca.pem"))
    verify = boolean(user, "enable.ssl.certificate.verification", True)
    context.check_hostname = verify and enumerated(user, "ssl.endpoint.identification.algorithm", "https") == "https"
    context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_NONE
    if "ssl.crl.location" in user:
        context.load_verify_locations(user["ssl.crl.location"])
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if "ssl.cipher.suites" in user:
        _set_ciphers(context, user["ssl.cipher.suites"])
    _load_own(context, user)
    return context


def _set_ciphers(context: ssl.SSLContext, suites: str) -> None:
    try:
        context.set_ciphers(suites.replace(",", ":"))
    except ssl.SSLError:
        raise unsupported_option(
            "kafka.ssl.cipher.suites",
            f"{suites}, of which OpenSSL knows none for TLS 1.2",
            "OpenSSL's names, such as ECDHE-RSA-AES256-GCM-SHA384, or remove the option",
        ) from None


def _load_own(context: ssl.SSLContext, user: Mapping[str, str]) -> None:
    with contextlib.ExitStack() as stack:

        def path(name: str) -> str | None:
            text = user.get(f"{name}.pem")
            return user.get(f"{name}.location") if text is None else stack.enter_context(_as_file(text))

        certificate = path("ssl.certificate")
        if certificate is not None:
            # Without a password, OpenSSL would ask for it on the terminal, and wait.
            context.load_cert_chain(certificate, path("ssl.key"), user.get("ssl.key.password") or _no_password)
        elif path("ssl.key") is not None:
            raise missing_option("kafka.ssl.certificate.location", "there is a key alone", "the key's certificate")


def _no_password() -> str:
    raise OSError("the key is encrypted, but kafka.ssl.key.password is not set")


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Yield a path at which OpenSSL, which reads keys only from files, finds the text: a file in memory if the system
    gives these, else one without a name, which disappears when it is closed."""
    with memory_file("pem") or tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        yield f"{_OPEN_FILES}/{file.fileno()}"


_OPEN_FILES = "/proc/self/fd" if Path("/proc/self/fd").is_dir() else "/dev/fd"
