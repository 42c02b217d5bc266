"""Which cluster a command asks, and how it is reached: the client's properties, from its options and from a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from spark_eos.errors import EosError, stop

if TYPE_CHECKING:
    from spark_eos.kafka.config.properties import KafkaProperties


def client_of(servers: str, given: Mapping[str, str], file: str | None) -> KafkaProperties:
    """The client's properties; those that are ``given`` count more than those of the file. Raises OptionError, without
    the value of any."""
    from spark_eos.kafka.config.properties import KafkaProperties

    of_file = dict(_properties_in(file)) if file else {}
    return KafkaProperties({**of_file, **given, "bootstrap.servers": servers})


def _properties_in(file: str) -> Iterator[tuple[str, str]]:
    from pathlib import Path

    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_file(f"{file} cannot be read ({type(error).__name__})") from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                key, value = client_property(line)
            except ValueError:
                raise _bad_file(f"line {number} of {file} is not KEY=VALUE") from None
            yield key, value.strip()


def _bad_file(what: str) -> EosError:
    return stop("EOS_OPTION_INVALID.kafka_file", what=what)


def client_property(text: str) -> tuple[str, str]:
    """Name and value of KEY=VALUE. Raises ValueError, without the value, which may be a password."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError("it takes KEY=VALUE")
    return key.strip().removeprefix("kafka."), value
