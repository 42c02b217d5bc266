"""Normalizes values of properties that this package reads, too, as librdkafka reads them: one spelling for each value.

A boolean is ``true``, ``t`` or ``1``, or ``false``, ``f`` or ``0``, in any case. The value of an enumeration is one of
its names in any case, after any white space. An integer is as for C's ``strtol``: decimal, ``0x…`` or, with a leading
zero, octal. librdkafka ignores characters after the digits, and would read ``1e6`` as 1; they are refused here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_eos.errors import EosError, invalid_option
from spark_eos.kafka.config.properties import is_secret

BOOLEANS = frozenset(
    {
        "enable.sasl.oauthbearer.unsecure.jwt",
        "enable.ssl.certificate.verification",
        "sasl.oauthbearer.header.urlencode",  # the Java client's
    }
)
ENUMERATIONS = {
    "broker.address.family": ("any", "v4", "v6"),
    "client.dns.lookup": ("use_all_dns_ips",),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "sasl.oauthbearer.grant.type": ("client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
    "sasl.oauthbearer.metadata.authentication.type": ("none", "azure_imds", "aws_iam"),
    "sasl.oauthbearer.method": ("default", "oidc"),
    "security.protocol": ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    "ssl.endpoint.identification.algorithm": ("none", "https"),
}
#: First and last value.
INTEGERS = {
    "batch.size": (1, 2_147_483_647),
    "compression.level": (-1, 12),
    "fetch.max.bytes": (0, 2_147_483_135),
    "fetch.wait.max.ms": (0, 300_000),
    "max.partition.fetch.bytes": (1, 1_000_000_000),
    "socket.timeout.ms": (10, 300_000),
}
_TRUE, _FALSE = ("true", "t", "1"), ("false", "f", "0")
_SPACE = " \t\n\v\f\r"
_INTEGER = re.compile(rf"[{_SPACE}]*([+-]?)(?:0[xX]([0-9a-fA-F]+)|(0[0-7]*)|([1-9][0-9]*))[{_SPACE}]*")


def normalized(key: str, name: str, value: str) -> str:
    """Return the value of a property in its one spelling; unchanged for a property that this module does not list.

    ``key``: the user's name for it, for the error. Raises OptionError (EOS_OPTION_INVALID).
    """
    if name in BOOLEANS:
        return "true" if _boolean(key, value) else "false"
    if name in ENUMERATIONS:
        return _enumerated(key, name, value)
    if name in INTEGERS:
        return str(within(key, value, *INTEGERS[name]))
    return value


def boolean(properties: Mapping[str, str], name: str, default: bool) -> bool:
    return _boolean(name, properties[name]) if name in properties else default


def enumerated(properties: Mapping[str, str], name: str, default: str) -> str:
    """Return the value in lower case."""
    return _enumerated(name, name, properties[name]) if name in properties else default


def integer(properties: Mapping[str, str], name: str, default: int) -> int:
    return within(name, properties[name], *INTEGERS[name]) if name in properties else default


def parse_integer(value: str) -> int | None:
    """Parse an integer as ``strtol`` with base 0 does; None if the text is not an integer from beginning to end."""
    match = _INTEGER.fullmatch(value)
    if match is None:
        return None
    sign, hexadecimal, octal, decimal = match.groups()
    number = int(hexadecimal, 16) if hexadecimal else int(octal, 8) if octal else int(decimal)
    return -number if sign == "-" else number


def _boolean(key: str, value: str) -> bool:
    lowered = value.lower()
    if lowered not in _TRUE + _FALSE:
        raise _invalid(key, value, "true, false")
    return lowered in _TRUE


def _enumerated(key: str, name: str, value: str) -> str:
    lowered = value.lower().lstrip(_SPACE)
    if lowered in ENUMERATIONS[name]:
        return lowered
    raise _invalid(key, value, ", ".join(ENUMERATIONS[name]))


def within(key: str, value: str, first: int, last: int) -> int:
    """Return the integer. ``key``: the user's name for it, for the error. Raises OptionError (EOS_OPTION_INVALID)
    unless it is one from first to last."""
    number = parse_integer(value) if len(value) < 64 else None
    if number is None or not first <= number <= last:
        raise _invalid(key, value, f"{first} to {last}")
    return number


def _invalid(key: str, value: str, allowed: str) -> EosError:
    shown = "***" if is_secret(key) else value
    return invalid_option(f"kafka.{key}", f"'{shown}'", allowed)
