"""Chooses the files of a micro-batch from a table's log, up to limits, and the same ones in each replay.

A micro-batch of changes has one or several whole versions, so that readers of a topic never see half of a version. The
files that the table had when the query began are all inserts: they may be spread over micro-batches, and no version
follows them within one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from spark_eos.errors import EosError, stop
from spark_eos.pipelines.copy.from_table.position import First, TablePosition
from spark_eos.pipelines.tables.delta.source import other_table
from spark_eos.pipelines.tables.delta.versions import CHANGED, VersionFiles

#: The most versions without new rows, such as commits of OPTIMIZE, that one micro-batch skips.
MOST_VERSIONS = 1000
#: Bytes from which on a version of changes that need no order is a micro-batch by itself: several tasks can write it.
ALONE_BYTES = 32 << 20


class VersionLog(Protocol):
    """See `spark_eos.pipelines.tables.delta.log.TableLog`."""

    def files(self, version: int) -> VersionFiles | None: ...

    def first(self, version: int) -> VersionFiles: ...


@dataclass(frozen=True)
class Limits:
    """Limits of a micro-batch, which reads at least one file of any size, or one version of changes. ``size``: in bytes
    of files."""

    files: int
    size: int


@dataclass(frozen=True)
class FilesOfVersion:
    """Some files of a version, numbered from ``first`` on. ``at_first``: they are among all files that the table had,
    not among the files that the version appended or changed."""

    version: int
    at_first: bool
    first: int
    files: pa.Table


def group_at(log: VersionLog, at: TablePosition, path: str) -> VersionFiles | None:
    """Return the files among which the next one is; None for a version that is not there yet. ``path``: of the table.
    Raises TableError, DataLossError."""
    if at.first is None:
        return log.files(at.version)
    group = log.first(at.version)
    if (group.files.num_rows, group.mark) != (at.first.files, at.first.mark):
        raise other_table(path, f"at version {at.version} it had other files than were read")
    return group


def next_end(log: VersionLog, start: TablePosition, limits: Limits, newest: int | None, path: str) -> TablePosition:
    """Return where the micro-batch that begins at ``start`` ends; ``start`` itself where nothing is new. ``newest``:
    the last version to read, if there is one. Raises TableError, DataLossError."""
    at, files, size = replace(start, begin=None), 0, 0
    for _ in range(MOST_VERSIONS):
        try:
            group = None if newest is not None and at.version > newest else group_at(log, at, path)
        except EosError:
            if files:  # files of earlier versions are written first; the next plan begins with this version
                break
            raise
        if group is None:
            break
        commit = (at.version, group.mark) if at.first is None else at.commit
        sizes = group.files.column("size").to_pylist()[at.file :]
        alone = at.changes and (at.first is not None or _is_alone(group))
        if at.changes and at.first is None:
            if files and (alone or files + len(sizes) > limits.files or size + sum(sizes) > limits.size):
                return at
            files, size = files + len(sizes), size + sum(sizes)
        else:
            for number, of_file in enumerate(sizes, at.file):
                if files and (files == limits.files or size + of_file > limits.size):
                    return at if number == at.file else replace(at, file=number, commit=commit)
                files, size = files + 1, size + of_file
        at = replace(at, version=at.version + 1, file=0, commit=commit, first=None)
        if alone and files:
            break
    return at


def files_between(log: VersionLog, start: TablePosition, end: TablePosition, path: str) -> Iterator[FilesOfVersion]:
    """Yield the files of a micro-batch, in order. Raises TableError, DataLossError where the log no longer has them."""
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
        at = replace(at, version=at.version + 1, file=0, first=None)


def in_any_order(groups: Sequence[FilesOfVersion]) -> bool:
    """Return whether the rows of these files of changes need no order: all of them were deleted, or all inserted, by
    one version."""
    return len(groups) <= 1 and all(_is_of_one_kind(group.files) for group in groups)


def _is_of_one_kind(files: pa.Table) -> bool:
    """Return whether all rows of these files were deleted, or all inserted."""
    kinds = files.column("kind").unique().to_pylist()
    return len(kinds) <= 1 and CHANGED not in kinds


def _is_alone(group: VersionFiles) -> bool:
    sizes = group.files.column("size").to_pylist()
    return len(sizes) > 1 and sum(sizes) >= ALONE_BYTES and _is_of_one_kind(group.files)


def beginning(
    table: str, version: int, group: VersionFiles | None, commit: str | None, *, changes: bool = False
) -> TablePosition:
    """Return where a new query begins: with ``group``, all files that the table has at a version, or without it, with
    the files of that version. ``commit``: the mark of the version's JSON, where the query reads on from it;
    ``changes``: whether it reads changes."""
    first = None if group is None else First(group.files.num_rows, group.mark)
    return TablePosition(table, version, 0, None if commit is None else (version, commit), first, changes=changes)
