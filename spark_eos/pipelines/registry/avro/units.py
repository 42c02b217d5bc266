"""Ranges of Avro's numbers, and units of its times."""

from __future__ import annotations

from spark_eos.pipelines.registry.avro.schema import Decimal

INT_LEAST, INT_MOST = -(1 << 31), (1 << 31) - 1
LONG_LEAST, LONG_MOST = -(1 << 63), (1 << 63) - 1
#: Units of times, in a second.
UNITS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
DAY_S = 24 * 60 * 60


def kind_and_unit(logical: str | Decimal | None) -> tuple[str, str]:
    """Return a logical type's kind, such as "local-timestamp", and its unit; empty where there is none."""
    if not isinstance(logical, str):
        return "", ""
    kind, _, unit = logical.rpartition("-")
    return (kind, unit) if unit in UNITS else (logical, "")
