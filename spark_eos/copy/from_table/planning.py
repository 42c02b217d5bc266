"""Which files a micro-batch reads: by a table's log, up to limits, and the same ones whenever it is run again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from spark_eos.copy.from_table.position import First, Position
from spark_eos.errors import EosError, stop
from spark_eos.tables.delta.appends import Appended, other_table

#: Versions without new rows, such as those of OPTIMIZE, that one micro-batch passes.
MOST_VERSIONS = 1000


class Log(Protocol):
    """See `spark_eos.tables.delta.appends.AppendLog`."""

    def appended(self, version: int) -> Appended | None: ...

    def first(self, version: int) -> Appended: ...


@dataclass(frozen=True)
class Limits:
    """Of a micro-batch, which reads at least one file whatever its size. ``size``: in bytes of files."""

    files: int
    size: int


@dataclass(frozen=True)
class FilesOfVersion:
    """Some files of a version, that have the numbers from ``first`` on. ``at_first``: they are of all that the table
    had, not of those that the version has appended."""

    version: int
    at_first: bool
    first: int
    files: pa.Table


def group_at(log: Log, at: Position, path: str) -> Appended | None:
    """The files among which the next one is; None for a version that is not there yet. ``path``: of the table. Raises
    TableError, DataLossError."""
    if at.first is None:
        return log.appended(at.version)
    group = log.first(at.version)
    if (group.files.num_rows, group.mark) != (at.first.files, at.first.mark):
        raise other_table(path, f"at version {at.version} it had other files than were read")
    return group


def next_end(log: Log, start: Position, limits: Limits, newest: int | None, path: str) -> Position:
    """Where the micro-batch that begins at ``start`` ends; ``start`` itself where nothing is new. ``newest``: the last
    version to read, if there is one. Raises TableError, DataLossError."""
    at, files, size = replace(start, begin=None), 0, 0
    for _ in range(MOST_VERSIONS):
        try:
            group = None if newest is not None and at.version > newest else group_at(log, at, path)
        except EosError:
            if files:  # what comes before is written first; the next plan begins with this version
                break
            raise
        if group is None:
            break
        commit = (at.version, group.mark) if at.first is None else at.commit
        for number, of_file in enumerate(group.files.column("size").to_pylist()[at.file :], at.file):
            if files and (files == limits.files or size + of_file > limits.size):
                return at if number == at.file else replace(at, file=number, commit=commit)
            files, size = files + 1, size + of_file
        at = Position(at.table, at.version + 1, commit=commit)
    return at


def files_between(log: Log, start: Position, end: Position, path: str) -> Iterator[FilesOfVersion]:
    """The files of a micro-batch, in order. Raises TableError, DataLossError where the log no longer has them."""
    at = start
    while (at.version, at.file, at.first) != (end.version, end.file, end.first):
        is_last = at.version == end.version and at.first == end.first
        if at.version > end.version or (is_last and at.file > end.file):
            raise stop(
                "EOS_DELTA_LOG_DAMAGED", cause=f"the checkpoint of the query has {at} before {end}, table {path}"
            )
        group = group_at(log, at, path)
        if group is None:
            raise stop("EOS_DELTA_DATA_LOSS.log", cause=f"version {at.version} of {path} is gone")
        if at.first is None and end.commit is not None and end.commit[0] == at.version and end.commit[1] != group.mark:
            raise other_table(path, f"its version {at.version} is not the one that was read")
        upto = end.file if is_last else group.files.num_rows
        if upto > group.files.num_rows:
            raise other_table(path, f"its version {at.version} has fewer files than were read")
        if upto > at.file:
            yield FilesOfVersion(at.version, at.first is not None, at.file, group.files.slice(at.file, upto - at.file))
        if is_last:
            return
        at = Position(at.table, at.version + 1)


def beginning(table: str, version: int, group: Appended | None, commit: str | None) -> Position:
    """Where a new query begins: with the ``group`` of all files that the table has at a version, or without, with what
    that version has appended. ``commit``: the mark of the version's JSON, where the query reads on from it."""
    first = None if group is None else First(group.files.num_rows, group.mark)
    return Position(table, version, 0, None if commit is None else (version, commit), first)
