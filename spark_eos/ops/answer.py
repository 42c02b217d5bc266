"""The answer of a command, and its parts that several commands print: tables, durations, ranges of offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spark_eos.base.printable import printable
from spark_eos.base.topic_partition import OffsetRange


@dataclass(frozen=True)
class Answer:
    """The answer of a command. ``data``: for JSON; ``text``: for people; ``code``: the exit code. Client properties,
    which may be passwords, are in neither."""

    data: Any
    text: str
    code: int = 0


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of text in columns; the first row is the heading."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def duration(duration_s: float, digits: int = 3) -> str:
    """Return a duration in its largest unit: 15 min, 1.5 s, 20 ms."""
    units = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 0.001))
    unit, size = next(((unit, size) for unit, size in units if duration_s >= size), units[-1])
    number = duration_s / size
    return f"{number:.0f} {unit}" if number >= 10 ** (digits - 1) else f"{number:.{digits}g} {unit}"


def ago(age_s: float | None) -> str:
    """Return how long ago; "?" where that is not known."""
    return "?" if age_s is None else f"{duration(age_s, digits=2)} ago"


def utc(time_ms: int) -> str:
    """Return a time in milliseconds since 1970, in ISO 8601; the number where that has no such year, as a record
    may."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def range_as_json(r: OffsetRange) -> dict[str, Any]:
    """Return a range of offsets, for JSON."""
    return {"topic": r.topic, "partition": r.partition, "start": r.start, "end": r.end}


def range_as_text(r: OffsetRange) -> str:
    """Return a range of offsets, for people."""
    return f"{r.topic}-{r.partition}  offsets {r.start} to {r.end}"
