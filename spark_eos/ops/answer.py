"""What a command has to say, and how it lays text out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_eos.printable import printable


@dataclass(frozen=True)
class Answer:
    """The answer of a command as plain data for JSON, and as text; ``code`` is the exit code. Kafka properties are in
    neither."""

    data: Any
    text: str
    code: int = 0


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, in columns; the first row is the heading."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def ago(age_s: float | None) -> str:
    """How long ago; "?" where nobody knows."""
    if age_s is None:
        return "?"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if age_s >= 2 * size:
            return f"{age_s / size:.0f} {unit} ago"
    return f"{age_s:.0f} s ago"
