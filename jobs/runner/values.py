"""The types of the values in a job's config file, and their checks before Spark starts, which raise `Rejected`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from spark_eos.errors import EosError, stop
from spark_eos.kafka.config.properties import KafkaProperties

AVAILABLE_NOW = "availableNow"
#: A number and a unit of Spark's intervals. A trigger does not allow months and years.
_PART = r"(?:(\d+)\s+(week|day|hour|minute|millisecond|microsecond)s?|(\d+\.?\d*|\.\d+)\s+seconds?)(?:\s+|$)"
_INTERVAL = re.compile(rf"\s*(?:interval\s+)?(?:[+]?\s*{_PART})+", re.IGNORECASE | re.ASCII)
_SECONDS = {"week": 604800, "day": 86400, "hour": 3600, "minute": 60, "millisecond": 1e-3, "microsecond": 1e-6}
_INTERVALS = "Use numbers with units: 500 milliseconds, 1 second, 2 minutes 30 seconds, 1 hour, 1 day."
#: Spark's masters. A URL (`spark://…`, `k8s://…`) may be any.
_MASTER = re.compile(r"yarn|local|local\[([1-9][0-9]*|\*)(\s*,\s*[0-9]+)?\]|local-cluster\[.+\]|[A-Za-z][\w+.-]*://.+")
#: The name of a setting of Spark.
_SETTING = re.compile(r"spark\.\S+")


class Rejected(ValueError):
    """A value has the right type, but is invalid.

    ``message`` follows the path of the key in the error's text. ``key``: the path of keys from the value that is
    checked to the invalid one. ``condition`` is the end of the error's condition, after ``EOS_CONFIG_``.
    """

    def __init__(self, message: str, hint: str, key: Sequence[str] = (), condition: str = "INVALID_VALUE") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.key = tuple(key)
        self.condition = condition


def invalid(key: str, problem: str, remedy: str) -> EosError:
    """Return the error of a key of the config file, in words that follow it: "'KEY' PROBLEM. Hint: REMEDY."."""
    texts = {"what": f"'{key}'" if key else "The file", "problem": f"{problem}.", "remedy": f"{remedy}."}
    return stop("EOS_CONFIG_INVALID_VALUE.key", key=key, **texts)


def missing(key: Sequence[str] = (), message: str = "is missing.", hint: str = "Set a value.") -> Rejected:
    """Return the error for a key that has to be set."""
    return Rejected(message, hint, key, "MISSING_KEY")


def unknown(key: str, known: Sequence[str], at: Sequence[str] = (), *, instead: str | None = None) -> Rejected:
    """Return the error for a key that does not exist, with the advice ``instead`` or the most similar existing key."""
    lowered = {each.lower(): each for each in known}
    near = difflib.get_close_matches(key.lower(), lowered, n=1)
    hint = f"Did you mean '{lowered[near[0]]}'?" if near else f"Known here: {', '.join(known) or 'none'}."
    return Rejected("is not a known key.", instead or hint, at, "UNKNOWN_KEY")


def check_filled(text: str) -> str:
    """Check that a text is not empty."""
    if not text.strip() or "\0" in text:
        raise Rejected("is empty, or has a null character.", "Set a value.")
    return text


def check_digits(value: object) -> object:
    """Check the digits of a number: pydantic would also take 1_000, 1.0 and the digits of other scripts."""
    if isinstance(value, str) and not re.fullmatch(r"[+-]?[0-9]+", value.strip()):
        raise Rejected("is not a whole number.", "Use a whole number, without a unit.")
    return value


def check_interval(text: str, hint: str = _INTERVALS) -> str:
    """Check an interval, in the form that `Trigger.ProcessingTime` takes."""
    if not _INTERVAL.fullmatch(text):
        raise Rejected("is not an interval.", hint)
    return text


def seconds_of(interval: str) -> float:
    """Return the length of an interval that `check_interval` accepts."""
    parts = re.findall(_PART, interval, re.IGNORECASE | re.ASCII)
    return sum(float(seconds) if seconds else float(n) * _SECONDS[unit.lower()] for n, unit, seconds in parts)


def check_trigger(text: str) -> str:
    """Check a trigger, which says when micro-batches begin."""
    hint = f"Use {AVAILABLE_NOW}, or an interval, such as 1 second or 2 minutes 30 seconds."
    return text if text == AVAILABLE_NOW else check_interval(text, hint)


def check_properties(values: Mapping[str, str]) -> KafkaProperties:
    """Check that no two names differ in capital letters only."""
    names = [name.lower() for name in values]
    for name in values:
        if names.count(name.lower()) > 1:
            raise Rejected("is there twice.", "Keep one of them: capital letters make no difference.", [name])
    return KafkaProperties(values)


def check_spark(settings: Mapping[str, str]) -> KafkaProperties:
    """Check settings of Spark: each begins with `spark.`, else it would have no effect, and a master is valid."""
    for name in settings:
        if not _SETTING.fullmatch(name):
            message = "is not a setting of Spark: in this section, too, its settings begin with 'spark.'."
            raise Rejected(message, f"Write '{_in_full(name)}'.", [name], "UNKNOWN_KEY")
    master = settings.get("spark.master", "local")
    if not _MASTER.fullmatch(master.strip()):
        hint = "Use local[4], local[*], yarn, spark://host:port or k8s://https://host:port."
        raise Rejected("is not a Spark master.", hint, ["spark.master"])
    return KafkaProperties(settings)


def _in_full(name: str) -> str:
    """Return the name of a setting with Spark's prefix."""
    rest = re.sub(r"^spark\.", "", name.strip(), flags=re.IGNORECASE)
    return f"spark.hadoop.{rest}" if rest.startswith("fs.") else f"spark.{rest}"


def here() -> str:
    """Return the working directory, as messages name it."""
    try:
        return str(Path.cwd())
    except OSError:
        return "a folder that has been deleted"


Text = Annotated[str, AfterValidator(check_filled)]
Number = Annotated[int, BeforeValidator(check_digits), Field(le=10**18)]
AtLeastZero = Annotated[Number, Field(ge=0)]
AtLeastOne = Annotated[Number, Field(ge=1)]
#: Of an Iceberg table: random, and larger than any number of a sequence.
SnapshotId = Annotated[int, BeforeValidator(check_digits), Field(ge=0, le=2**63 - 1)]
#: Free names, and their values as texts. It prints no secrets.
Properties = Annotated[Mapping[str, str], AfterValidator(check_properties)]
SparkSettings = Annotated[Mapping[str, str], AfterValidator(check_spark)]
Interval = Annotated[str, AfterValidator(check_interval)]
Trigger = Annotated[str, AfterValidator(check_trigger)]
NO_PROPERTIES = KafkaProperties({})
