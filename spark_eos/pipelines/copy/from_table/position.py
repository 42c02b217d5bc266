"""The position of a query in a table, as Spark's offset log has it.

::

    {"table": "1b3c…", "version": 7, "file": 3, "commit": {"version": 7, "mark": "5f0c…"}}

Files before number 3 of version 7 are read. ``commit`` is the newest version whose JSON was read: as it never changes,
another mark means another table. While the table's first files are read, ``first`` says how many there are, and their
digest. The first line of a query also says where it begins (``begin``), as Spark asks for the initial offset anew when
it replays the first micro-batch. Each line of a query that reads the table's changes says so (``"changes": true``): for
such a query, a version has other files than for one that reads appended rows.

A query that reads the table through Spark has Delta's own offsets, which are refused here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_eos.errors import stop

#: The initial offset of every query.
NEW: Mapping[str, Any] = {"new": True}


@dataclass(frozen=True)
class First:
    """All files that a table has: how many, and their digest."""

    files: int
    mark: str


@dataclass(frozen=True)
class TablePosition:
    """The next file to be read is number ``file`` of ``version``: of the files that it appended, or, with ``first``, of
    all that the table had then. ``commit``: version and mark of the newest JSON that was read; None where there is
    none. ``begin``: where the query began, at the end of its first micro-batch. ``changes``: whether changes are
    read."""

    table: str
    version: int
    file: int = 0
    commit: tuple[int, str] | None = None
    first: First | None = None
    begin: TablePosition | None = None
    changes: bool = False


def to_spark(position: TablePosition) -> dict[str, Any]:
    """Convert to JSON, whose text is the same for equal positions."""
    fields: dict[str, Any] = {"table": position.table, "version": position.version, "file": position.file}
    if position.commit is not None:
        fields["commit"] = {"version": position.commit[0], "mark": position.commit[1]}
    if position.first is not None:
        fields["first"] = {"files": position.first.files, "mark": position.first.mark}
    if position.changes:
        fields["changes"] = True
    if position.begin is not None:
        fields["begin"] = to_spark(position.begin)
    return fields


def from_spark(logged: Mapping[str, Any]) -> TablePosition | None:
    """Parse the result of `to_spark`; None for anything else."""
    try:
        commit, first, begin = logged.get("commit"), logged.get("first"), logged.get("begin")
        return TablePosition(
            str(logged["table"]),
            int(logged["version"]),
            int(logged["file"]),
            None if commit is None else (int(commit["version"]), str(commit["mark"])),
            None if first is None else First(int(first["files"]), str(first["mark"])),
            None if begin is None else from_spark(begin),
            logged.get("changes") is True,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def check_reads(position: TablePosition, path: str, *, changes: bool) -> None:
    """Check that the query still reads the same of the table: its changes, or its appended rows. ``path``: of the
    table; ``changes``: whether it reads changes now. Raises TableError (EOS_DELTA_OTHER_SOURCE)."""
    if position.changes != changes:
        what = {True: "its changes", False: "the rows that are appended to it"}
        raise stop("EOS_DELTA_OTHER_SOURCE.changes", path=path, before=what[position.changes], now=what[changes])


def from_text(line: str | None) -> TablePosition | None:
    """Parse a position from Spark's JSON of an offset; None for one that `to_spark` has not written."""
    try:
        return from_spark(json.loads(line or "null"))
    except ValueError:
        return None
