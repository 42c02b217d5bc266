"""The changes of a table: their order, however their files are read, and the headers of the rows that come of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from spark_eos.pipelines.copy.from_table.changes import Changes, in_order, input_of, rows_of
from spark_eos.pipelines.copy.from_table.plan import TableFile
from spark_eos.pipelines.tables.delta.source import CHANGE_KINDS
from spark_eos.pipelines.tables.delta.versions import CHANGED
from spark_eos.pipelines.tables.reading import RowSlice
from spark_eos.source.schema import ARROW_HEADERS
from tests.support.judges.conditions import raises

#: Of each file, the kinds of its rows.
Files = dict[TableFile, list[str]]


def file_of(version: int, number: int, kind: str) -> TableFile:
    return TableFile(version, False, number, f"{version}.{number}", 1, "[]", kind)


def pieces_of(file: TableFile, kinds: Sequence[str | None], size: int = 3) -> Iterator[RowSlice]:
    """A file whose rows say where they stand, in pieces of so many."""
    columns = {"place": [f"{file.path}.{row}" for row in range(len(kinds))]}
    schema = pa.schema({"place": pa.string()})
    if file.kind == CHANGED:
        columns["_change_type"] = [*kinds]
        schema = schema.append(pa.field("_change_type", pa.string()))
    rows = pa.RecordBatch.from_pydict(columns, schema=schema)
    for first in range(0, len(kinds), size):
        yield RowSlice(rows.slice(first, size), first)


def pieces_in(files: Files, file: TableFile) -> Iterator[RowSlice]:
    return pieces_of(file, files[file])


def test_changes_come_by_version_and_kind_whether_they_are_held_or_read_again() -> None:
    """Also those of files that were removed or added as a whole. Each once; the pieces are the same, so that a replay
    has the same digest."""
    chance = random.Random(1)
    for _ in range(60):
        files: Files = {}
        for version in range(chance.randint(1, 3)):
            of_files = chance.choice([[CHANGED], ["delete", "insert"]])
            for number in range(chance.randint(1, 3)):
                kind = chance.choice(of_files)
                kinds = CHANGE_KINDS if kind == CHANGED else [kind]
                files[file_of(version, number, kind)] = chance.choices(kinds, k=chance.randint(0, 9))
        pieces = partial(pieces_in, files)
        found = [list(in_order(files, pieces, held_bytes=held)) for held in (0, 1 << 9, 1 << 30)]
        for one in found:
            order = [(part.file.version, CHANGE_KINDS.index(part.kind)) for part in one]
            assert order == sorted(order)
            places = [place for part in one for place in part.rows["place"].to_pylist()]
            there = {f"{file.path}.{n}": kind for file, kinds in files.items() for n, kind in enumerate(kinds)}
            assert sorted(places) == sorted(there)
            assert all(there[place] == part.kind for part in one for place in part.rows["place"].to_pylist())
            numbered = [f"{part.file.path}.{number}" for part in one for number in part.numbers.tolist()]
            assert numbered == places
            assert [(part.first, part.kind, part.rows) for part in one] == [
                (part.first, part.kind, part.rows) for part in found[0]
            ]


def test_files_are_read_once_where_their_rows_are_few() -> None:
    """And otherwise once for each kind that is in them."""
    file, reads = file_of(1, 0, "change"), []

    def pieces(of: TableFile) -> Iterator[RowSlice]:
        reads.append(of)
        return pieces_of(of, ["update_preimage", "update_postimage"] * 20)

    assert sum(part.rows.num_rows for part in in_order([file], pieces)) == 40 and len(reads) == 1
    list(in_order([file], pieces, held_bytes=100))
    assert len(reads) == 1 + 3


@pytest.mark.parametrize("kind", [None, "upsert", "INSERT"])
def test_a_change_of_an_unknown_kind_is_an_error(kind) -> None:
    """It would be in none of the four."""
    file = file_of(1, 0, "change")
    with raises("EOS_DELTA_FAILED", f"row 4 of 1.0 is a change of the kind {kind}"):
        list(in_order([file], lambda file: pieces_of(file, ["insert"] * 4 + [kind])))


def change(rows: pa.RecordBatch, kind: str = "insert", version: int = 12) -> Changes:
    return Changes(file_of(version, 0, kind), kind, rows, 0, np.arange(rows.num_rows))


def test_a_transform_gets_kind_and_version_behind_the_columns() -> None:
    """Of each row."""
    batch = input_of(change(pa.RecordBatch.from_pydict({"id": [1, 2]}), "delete"))
    assert batch.to_pylist() == [{"id": id_, "_change_type": "delete", "_commit_version": 12} for id_ in (1, 2)]


@pytest.mark.parametrize("own", [None, [None, [], [("a", b"1")], [("b", None), ("c", b"")]]])
def test_headers_are_the_rows_own_and_then_version_and_kind(own) -> None:
    """A row without headers has these two; it may be none at all."""
    columns = {"key": pa.array(["k"] * 4), "value": pa.array(["v"] * 4)}
    if own is not None:
        structs = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in own]
        columns["headers"] = pa.array([[{"key": "x", "value": b"x"}], *structs], ARROW_HEADERS.type).slice(1)
    rows = pa.RecordBatch.from_pydict(columns)
    ours = [("delta.commit.version", b"12"), ("delta.change.type", b"insert")]
    for part in (rows, rows.slice(2, 2), rows.slice(0, 0)):
        found = rows_of(part, change(part))
        kind = found["headers"].type
        assert ARROW_HEADERS.type == (kind if own is not None else kind.value_type)
        read = [[(header["key"], header["value"]) for header in row] for row in found["headers"].to_pylist()]
        first = 2 if part.num_rows == 2 else 0
        given = [[]] * 4 if own is None else [row or [] for row in own]
        assert read == [[*row, *ours] for row in given[first : first + part.num_rows]]


@pytest.mark.parametrize(
    ("columns", "entry"),
    [
        ({"_commit_version": pa.array(["12"])}, "EOS_DELTA_COLUMNS.changes"),
        ({"_change_type": pa.array([1])}, "EOS_DELTA_COLUMNS.changes"),
        ({"_commit_version": pa.array([13])}, "EOS_DELTA_NULL_ORDER.change"),
        ({"_commit_version": pa.array([None], pa.int64())}, "EOS_DELTA_NULL_ORDER.change"),
        ({"_change_type": pa.array(["INSERT"])}, "EOS_DELTA_NULL_ORDER.change"),
        ({"_change_type": pa.array([None], pa.string())}, "EOS_DELTA_NULL_ORDER.change"),
        ({"key": None}, "EOS_SCHEMA_INVALID.value"),
    ],
)
def test_what_orders_changes_has_to_stay_as_it_is(columns, entry) -> None:
    """A transform may leave version and kind out, but not the key."""
    good = {"key": pa.array(["k"]), "value": pa.array(["v"]), "_commit_version": pa.array([12], pa.int32())}
    good["_change_type"] = pa.array(["insert"], pa.large_string())
    rows = pa.RecordBatch.from_pydict(good)
    assert rows_of(rows, change(rows)).schema.names == ["key", "value", "headers"]
    bad = pa.RecordBatch.from_pydict({name: column for name, column in (good | columns).items() if column is not None})
    with raises(entry):
        rows_of(bad, change(bad))
