"""Parsing of simple option values. Raises OptionError, which names the option."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from spark_eos.base.whole_numbers import whole_number
from spark_eos.errors import invalid_option
from spark_eos.kafka.config.properties import Isolation

T = TypeVar("T")

#: Characters of a parser's message that an error shows.
_SHOWN = 200
_MOST_MILLIS = 2**31 - 1
_SIZE = re.compile(r"([0-9]{1,19})\s*(?:([kmgt])b?|b)?")


def parsed(name: str, parse: Callable[[str, str], T], value: str) -> T:
    """Return the value of an option. Errors of Python's own parsers, as for a number of thousands of digits or a text
    that is nested too deeply, become an OptionError, too."""
    try:
        value.encode()
        return parse(name, value)
    except (ValueError, OverflowError, RecursionError) as error:
        problem = f"{type(error).__name__}: {str(error)[:_SHOWN]}"
        raise invalid_option(
            name,
            f"not readable ({problem})",
            "another value: a number may be too long, brackets nested too deeply, or a character half",
        ) from None


def parse_text(name: str, value: str) -> str:
    if not value.strip():
        raise invalid_option(name, "empty", "a value, or remove the option")
    return value.strip()


def parse_exact(name: str, value: str) -> str:
    """Return a name that somebody compares, or makes an id of: spaces around it belong to it. Raises OptionError."""
    parse_text(name, value)
    return value


def parse_positive(name: str, value: str) -> int:
    number = whole_number(value.strip())
    if not number:
        raise invalid_option(name, f"'{value}'", "a whole number of at least 1")
    return number


def parse_millis(name: str, value: str) -> int:
    """Parse milliseconds, as many as Kafka's own settings take: no sleep or timeout may be longer than clocks can
    count."""
    number = whole_number(value.strip())
    if not number or number > _MOST_MILLIS:
        raise invalid_option(name, f"'{value}'", f"whole milliseconds, 1 to {_MOST_MILLIS}")
    return number


def parse_size(name: str, value: str) -> int:
    """Parse bytes, as Spark writes sizes: ``1048576``, ``1024k``, ``1m``, ``1mb``."""
    match = _SIZE.fullmatch(value.strip().lower())
    size = int(match[1]) << 10 * "bkmgt".index(match[2] or "b") if match else 0
    if size < 1:
        raise invalid_option(
            name, f"'{value}'", "a whole number of bytes of at least 1, or one with a unit, such as 64m or 1g"
        )
    return size


def parse_batch(name: str, value: str) -> int:
    """Return the number of a micro-batch."""
    number = whole_number(value.strip())
    if number is None:
        raise invalid_option(
            name,
            f"'{value}'",
            "a whole number from 0; for 'ledger.begin', the micro-batch that EOS_LEDGER_HEAD_MISSING names: the one "
            "after the highest in the checkpoint's folder 'commits'",
        )
    return number


def parse_version(name: str, value: str) -> int:
    """Return the number of a version of a table."""
    number = whole_number(value.strip())
    if number is None:
        raise invalid_option(
            name,
            f"{value}, which is no version of a table",
            "a number from 0, as in DESCRIBE HISTORY: 'latest' would be another in a replay of the first micro-batch",
        )
    return number


def parse_boolean(name: str, value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise invalid_option(name, f"'{value}'", "true or false")
    return lowered == "true"


def parse_isolation(value: str) -> Isolation:
    lowered = value.strip().lower()
    if lowered == "read_committed":
        return "read_committed"
    if lowered == "read_uncommitted":
        return "read_uncommitted"
    raise invalid_option(
        "kafka.isolation.level", f"'{value}'", "read_committed, which is the default, or read_uncommitted"
    )
