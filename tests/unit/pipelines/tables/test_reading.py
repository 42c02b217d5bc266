"""Rows of data files with the columns and types of their table, in pieces that do not depend on the reader."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import open_store
from spark_eos.errors import EosError
from spark_eos.pipelines.tables import reading
from spark_eos.pipelines.tables.reading import FileReader, RowSlice
from tests.support.judges.conditions import raises

UTC = pa.timestamp("us", "UTC")
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


class Files:
    """Files in a folder, and what the reader makes of them for a table of these columns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, rows: pa.Table, **options: Any) -> None:
        pq.write_table(rows, self.folder / "f.parquet", **options)

    def pieces(self, schema: pa.Schema, partition_by: tuple[str, ...] = (), partition: str = "[]") -> list[RowSlice]:
        store = open_store(str(self.folder), HadoopSettings())
        reader = FileReader(store, str(self.folder), schema, partition_by)
        return list(reader.pieces("f.parquet", (self.folder / "f.parquet").stat().st_size, partition))

    def rows(self, schema: pa.Schema, *partition: Any) -> list[dict[str, Any]]:
        return [row for piece in self.pieces(schema, *partition) for row in piece.rows.to_pylist()]

    def refusal(self, schema: pa.Schema, *partition: Any) -> EosError:
        with pytest.raises(EosError) as error:
            self.pieces(schema, *partition)
        return error.value


@pytest.fixture
def files(tmp_path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def small_pieces(monkeypatch) -> None:
    """At most ten rows, and 10 kB."""
    monkeypatch.setattr(reading, "PIECE_ROWS", 10)
    monkeypatch.setattr(reading, "PIECE_BYTES", 10_000)


@pytest.mark.parametrize("group_rows", [1, 7, 10, 95, 200])
def test_pieces_are_cut_by_the_file_alone(files, small_pieces, group_rows) -> None:
    """All rows, in order, at most ten in a piece, and none of two row groups."""
    files.write(pa.table({"n": range(95)}), row_group_size=group_rows)
    found = files.pieces(pa.schema({"n": pa.int64()}))
    ends = sorted({*range(0, 95, group_rows), 95})
    cuts = [n for begin, end in pairwise(ends) for n in range(begin, end, 10)]
    assert [piece.first for piece in found] == cuts
    assert [row["n"] for piece in found for row in piece.rows.to_pylist()] == list(range(95))


@pytest.mark.parametrize(
    ("values", "cuts"),
    [
        ([b""] * 50 + [bytes([n]) * 4000 for n in range(9)], [*range(0, 59, 2)]),
        ([b"x" * 3000] * 95, [row for tenth in range(0, 95, 10) for row in range(tenth, min(tenth + 10, 95), 3)]),
    ],
    ids=["values that differ", "equal values, which the file has once"],
)
def test_pieces_of_wide_rows_have_few(files, small_pieces, values, cuts) -> None:
    """By the average of the row group whose rows are the widest, and by that of the rows that are read together."""
    files.write(pa.table({"v": values}), row_group_size=50)
    found = files.pieces(pa.schema({"v": pa.binary()}))
    assert [piece.first for piece in found] == cuts
    assert sum(piece.rows.num_rows for piece in found) == len(values)


def test_partition_columns_come_from_the_log_and_new_ones_are_null(files) -> None:
    """In the table's order, whatever the file has under these names; columns that the table no longer has are left
    out."""
    files.write(pa.table({"gone": [1, 1], "p": ["not", "this"], "value": ["a", "b"]}))
    of_log = {"p": pa.string(), "d": pa.date32(), "t": pa.timestamp("us"), "n": pa.int16()}
    schema = pa.schema({"value": pa.string(), **of_log, "new": pa.int64()})
    expected = {"p": "x", "d": dt.date(2024, 5, 1), "t": dt.datetime(2024, 5, 1, 12), "n": None, "new": None}
    found = files.rows(schema, ("d", "p", "t", "n"), '["2024-05-01", "x", "2024-05-01 12:00:00", null]')
    assert found == [{**expected, "value": value} for value in "ab"]


def test_a_partition_value_of_another_type_is_refused(files) -> None:
    """As the library of another writer may have written it."""
    files.write(pa.table({"value": ["a"]}))
    schema = pa.schema({"value": pa.string(), "p": pa.decimal128(10, 2)})
    assert files.refusal(schema, ("p",), '["-1.-52"]').condition == "EOS_DELTA_FAILED"


def test_timestamps_of_spark_are_moments_at_any_depth(files) -> None:
    """Spark writes INT96, which has no zone, by default: in structs, arrays and maps, beside fields of other types."""

    def kind(moment: pa.DataType) -> pa.DataType:
        inner = pa.struct([("at", moment), ("n", pa.int64()), ("later", pa.map_(pa.string(), pa.list_(moment)))])
        return pa.list_(inner)

    plain = pa.timestamp("us")
    naive = NOON.replace(tzinfo=None)
    rows = [[{"at": naive, "n": 1, "later": [("a", [naive, None]), ("b", None)]}, None], [], None]
    written = pa.table({"v": pa.array(rows, kind(plain)), "w": pa.array([naive, None, naive], plain)})
    files.write(written, use_deprecated_int96_timestamps=True, store_schema=False)
    found = files.rows(pa.schema({"v": kind(UTC), "w": UTC}))
    moments = [[{"at": NOON, "n": 1, "later": [("a", [NOON, None]), ("b", None)]}, None], [], None]
    assert found == [{"v": v, "w": w} for v, w in zip(moments, [NOON, None, NOON], strict=True)]


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_moments_are_no_timestamps_without_a_zone(files, depth) -> None:
    """INT96 for a column whose table has no zone, at any depth: which time of day that is, depends on the zone."""

    def column(kind: pa.DataType) -> pa.Array:
        values: list[Any] = [NOON.replace(tzinfo=kind.tz and dt.UTC)]
        shapes = [
            (kind, values),
            (pa.struct({"n": pa.int64(), "at": kind}), [{"n": 1, "at": value} for value in values]),
            (pa.list_(kind), [values]),
            (pa.map_(pa.string(), pa.struct({"at": kind})), [[("k", {"at": value})] for value in values]),
        ]
        of_shape, rows = shapes[depth]
        return pa.array(rows, of_shape)

    plain = column(pa.timestamp("us"))
    schema = pa.schema({"n": pa.int64(), "v": plain.type})
    columns = {"n": pa.array([1]), "gone": pa.array([NOON], UTC), "v": column(UTC)}
    files.write(pa.table(columns), use_deprecated_int96_timestamps=True)
    error = files.refusal(schema)
    assert error.condition == "EOS_TABLE_COLUMNS" and "column v" in str(error)
    files.write(pa.table({**columns, "v": plain}))
    assert files.rows(schema) == [{"n": 1, "v": plain[0].as_py()}]
    files.write(pa.table(columns), use_deprecated_int96_timestamps=True)
    assert files.rows(pa.schema({"v": column(UTC).type})) == [{"v": column(UTC)[0].as_py()}]


def test_dates_by_the_old_calendar_are_refused(files) -> None:
    """They would be read as other days; a table without any reads such files."""
    for noted in ({"org.apache.spark.legacyDateTime": ""}, {"org.apache.spark.version": "2.4.8"}):
        files.write(pa.table({"d": [dt.date(1500, 1, 1)], "n": [1]}).replace_schema_metadata(noted))
        schema = pa.schema({"d": pa.date32(), "n": pa.int64()})
        assert files.refusal(schema).entry == "EOS_DELTA_TABLE_SETTINGS.reading"
        assert files.rows(pa.schema({"n": pa.int64()})) == [{"n": 1}]


def test_values_that_do_not_fit_the_table_are_refused(files) -> None:
    """Types of other values, bytes that are no text, null where there is none; also by another spelling of a
    column."""
    files.write(pa.table({"V": [1]}))
    assert files.refusal(pa.schema({"v": pa.int64()})).condition == "EOS_DELTA_FAILED"
    files.write(pa.table({"v": [1.5]}))
    assert files.refusal(pa.schema({"v": pa.int64()})).condition == "EOS_TABLE_COLUMNS"
    files.write(pa.table({"v": [b"\xff"]}))
    assert files.refusal(pa.schema({"v": pa.string()})).condition == "EOS_DELTA_FAILED"
    files.write(pa.table({"v": pa.array([None], pa.int64())}))
    assert files.refusal(pa.schema([pa.field("v", pa.int64(), nullable=False)])).condition == "EOS_DELTA_FAILED"


def test_a_file_that_is_gone_or_another_one_is_data_loss(files, tmp_path) -> None:
    """As VACUUM leaves it; and one that is damaged is named."""
    reader = FileReader(open_store(str(tmp_path), HadoopSettings()), "t", pa.schema({"n": pa.int64()}))
    with raises("EOS_DELTA_DATA_LOSS.files", "gone"):
        list(reader.pieces("gone.parquet", 1, "[]"))
    files.write(pa.table({"n": [1]}))
    with raises("EOS_DELTA_DATA_LOSS.files", "by the log 1"):
        list(reader.pieces("f.parquet", 1, "[]"))
    (tmp_path / "f.parquet").write_bytes(b"no file of Parquet")
    with raises("EOS_DELTA_FAILED"):
        list(reader.pieces("f.parquet", 18, "[]"))
