"""The changes of a table as rows of topics: in the order of each key's history, with version and kind as headers.

Within a version, deletes come first, then rows before and after an update, then inserts. So each call of a transform
gets changes of one version and one kind, and nothing has to be sorted: a file of changes, in which kinds are mixed, is
read once for each of its kinds, or just once if its rows are few enough to be held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from spark_eos.errors import stop
from spark_eos.pipelines.arrow_fields import is_text
from spark_eos.pipelines.copy.from_table.plan import TableFile
from spark_eos.pipelines.copy.transforming import HEADERS_TYPE, as_sink_rows
from spark_eos.pipelines.tables.delta.source import CHANGE_KINDS, CHANGE_TYPE, COMMIT_VERSION
from spark_eos.pipelines.tables.delta.versions import CHANGED
from spark_eos.pipelines.tables.reading import RowSlice

#: Headers that are added behind each row's own: its version in decimal digits, and its kind.
VERSION_HEADER, KIND_HEADER = "delta.commit.version", "delta.change.type"
_ADDED_HEADERS = 2
#: Bytes of one version's changes that a task keeps in memory, instead of reading their files again.
_HELD_BYTES = 64 << 20
_KINDS = pa.array(CHANGE_KINDS)


@dataclass(frozen=True)
class Changes:
    """Rows of one file that one version has changed in one way. ``first``: the number of the first row of the piece
    that they are from; ``numbers``: of each row, its number in the file."""

    file: TableFile
    kind: str
    rows: pa.RecordBatch
    first: int
    numbers: np.ndarray


#: Reads a file: the table's columns, followed by `CHANGE_TYPE` for a file of changes.
Pieces = Callable[[TableFile], Iterator[RowSlice]]


def in_order(files: Iterable[TableFile], pieces: Pieces, *, held_bytes: int = _HELD_BYTES) -> Iterator[Changes]:
    """Yield all changes of the files: version by version, and within a version in the order of `CHANGE_KINDS`.
    ``files``: in the order of their versions. Raises TableError for a change of another kind, and errors of
    ``pieces``."""
    for _, group in groupby(files, lambda file: (file.version, file.at_first)):
        of_version = list(group)
        mixed = [file for file in of_version if file.kind == CHANGED]
        for kind in CHANGE_KINDS:
            for file in of_version:
                if file.kind == kind:
                    yield from (_whole(file, piece) for piece in pieces(file))
        yield from _by_kind(mixed, pieces, held_bytes)


def _whole(file: TableFile, piece: RowSlice) -> Changes:
    return Changes(file, file.kind, piece.rows, piece.first, np.arange(piece.first, piece.first + piece.rows.num_rows))


def _by_kind(files: Sequence[TableFile], pieces: Pieces, held_bytes: int) -> Iterator[Changes]:
    first, *later = CHANGE_KINDS
    held: list[Changes] | None = []
    size, there = 0, set()
    for part in _parts_of(files, pieces):
        if part.kind == first:
            yield part
            continue
        there.add(part.kind)
        if held is not None:
            held.append(part)
            size += part.rows.nbytes
            held = held if size <= held_bytes else None
    for kind in later:
        if kind in there:
            parts = _parts_of(files, pieces) if held is None else held
            yield from (part for part in parts if part.kind == kind)


def _parts_of(files: Iterable[TableFile], pieces: Pieces) -> Iterator[Changes]:
    """Yield the rows of each piece of files of changes, by their kinds."""
    for file in files:
        for piece in pieces(file):
            column = piece.rows.column(CHANGE_TYPE)
            codes = pc.index_in(column, _KINDS)
            if codes.null_count:
                row = codes.is_null().index(True).as_py()
                cause = f"row {piece.first + row} of {file.path} is a change of the kind {column[row].as_py()}"
                raise stop("EOS_DELTA_FAILED", cause=cause)
            ranks = codes.to_numpy()
            for rank in np.unique(ranks):
                numbers = np.flatnonzero(ranks == rank)
                rows = piece.rows if len(numbers) == len(ranks) else piece.rows.take(pa.array(numbers))
                kind = CHANGE_KINDS[int(rank)]
                yield Changes(file, kind, rows.drop_columns(CHANGE_TYPE), piece.first, piece.first + numbers)


# Input and output of the transform


def input_schema(table: pa.Schema) -> pa.Schema:
    """Return the columns that a transform gets of a table with these columns."""
    return table.append(pa.field(CHANGE_TYPE, pa.string())).append(pa.field(COMMIT_VERSION, pa.int64()))


def input_of(changes: Changes) -> pa.RecordBatch:
    """Return the batch that a transform gets."""
    rows = changes.rows
    ours = [pa.repeat(pa.scalar(changes.kind), rows.num_rows), pa.repeat(changes.file.version, rows.num_rows)]
    return pa.RecordBatch.from_arrays([*rows.columns, *ours], schema=input_schema(rows.schema))


def rows_of(result: pa.RecordBatch, changes: Changes | None) -> pa.RecordBatch:
    """Convert a transform's result for these changes to the sink's columns, with the headers. ``changes``: None for an
    empty result, before there is a change. The transform may return version and kind, but unchanged.

    Raises SchemaError, RowError, and TableError where version or kind are changed (EOS_DELTA_COLUMNS,
    EOS_DELTA_NULL_ORDER).
    """
    _check_order(result, changes)
    rows = result.drop_columns([name for name in (CHANGE_TYPE, COMMIT_VERSION) if name in result.schema.names])
    rows = as_sink_rows(rows)
    if "key" not in rows.schema.names:
        raise stop(
            "EOS_SCHEMA_INVALID.value",
            column="key",
            where=" in the transform's result",
            why=" The changes of a key are written in the order in which they were made.",
        )
    names = [name for name in rows.schema.names if name != "headers"]
    theirs = rows.column("headers") if "headers" in rows.schema.names else None
    headers = _headers(rows.num_rows, theirs, changes)
    return pa.RecordBatch.from_arrays([*map(rows.column, names), headers], names=[*names, "headers"])


def _check_order(result: pa.RecordBatch, changes: Changes | None) -> None:
    fits = {CHANGE_TYPE: is_text, COMMIT_VERSION: types.is_integer}
    there = {name: result.column(name) for name in fits if name in result.schema.names}
    for name, column in there.items():
        if not fits[name](column.type):
            names = {"version": COMMIT_VERSION, "kind": CHANGE_TYPE}
            raise stop("EOS_DELTA_COLUMNS.changes", name=name, type=str(column.type), **names)
    if changes is None:
        return
    is_same = {CHANGE_TYPE: changes.kind, COMMIT_VERSION: changes.file.version}
    for name, column in there.items():
        same = pc.fill_null(pc.equal(column, pa.scalar(is_same[name], column.type)), False)
        row = same.index(False).as_py()
        if row >= 0:
            now = is_same | {name: column[row].as_py()}
            raise stop(
                "EOS_DELTA_NULL_ORDER.change",
                version=now[COMMIT_VERSION],
                kind=now[CHANGE_TYPE],
                version_column=COMMIT_VERSION,
                kind_column=CHANGE_TYPE,
            )


def _headers(count: int, theirs: pa.Array | None, changes: Changes | None) -> pa.Array:
    """Return the headers of ``count`` rows: their own, then the two of each change. Without own headers, all rows have
    the same list, which then is the only entry of a dictionary."""
    version, kind = ("", "") if changes is None else (str(changes.file.version), changes.kind)
    ours = pa.array(
        [{"key": VERSION_HEADER, "value": version.encode()}, {"key": KIND_HEADER, "value": kind.encode()}],
        HEADERS_TYPE.value_type,
    )
    if theirs is None:
        one = pa.ListArray.from_arrays(pa.array([0, _ADDED_HEADERS], pa.int32()), ours, type=HEADERS_TYPE)
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), one)
    lengths = np.asarray(pc.fill_null(pc.list_value_length(theirs), 0)).astype(np.int64)
    ours = pa.concat_arrays([theirs.flatten().cast(ours.type), ours])
    ends = np.cumsum(lengths + _ADDED_HEADERS)
    indices = np.empty(int(ends[-1]) if count else 0, np.int64)
    is_theirs = np.ones(len(indices), bool)
    for back in range(1, _ADDED_HEADERS + 1):
        is_theirs[ends - back] = False
        indices[ends - back] = len(ours) - back
    indices[is_theirs] = np.arange(len(ours) - _ADDED_HEADERS)
    offsets = pa.array(np.append(0, ends), pa.int32())
    return pa.ListArray.from_arrays(offsets, ours.take(pa.array(indices)), type=HEADERS_TYPE)
