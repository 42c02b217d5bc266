"""What the benchmark sees of a table of Iceberg in a folder."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from bench import lake
from bench.result import WrongResult
from tests.support.tables.table_kinds import Iceberg

SCHEMA = pa.schema({"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()})


@pytest.fixture
def table(tmp_path) -> Table:
    catalog = Iceberg(tmp_path).opened()
    catalog.create_namespace("tests")
    return catalog.create_table(Iceberg.table, SCHEMA)


def folder_of(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


def append(table: Table, *offsets: int) -> None:
    rows = [{"topic": "t", "partition": 0, "offset": offset} for offset in offsets]
    table.append(pa.Table.from_pylist(rows, SCHEMA))


def test_rows_are_those_of_the_newest_version(table, tmp_path) -> None:
    """None before there is a table, or a row in it. A draft of a version is none."""
    folder = folder_of(table)
    assert lake.rows_told(tmp_path / "none") == lake.rows_read(tmp_path / "none") == 0
    assert lake.rows_told(folder) == lake.rows_read(folder) == 0
    for n in range(12):
        append(table, n)
    draft = folder / "metadata" / "0123abcd-uuid.metadata.json"
    draft.write_text("half of")
    assert lake.rows_told(folder) == lake.rows_read(folder) == 12


def test_a_row_that_is_there_twice_is_noticed(table) -> None:
    """By its place in the topic."""
    append(table, 0, 1)
    append(table, 1)
    with pytest.raises(WrongResult, match="3 rows of a table are from 2 places"):
        lake.rows_read(folder_of(table))


def test_each_file_is_seen_once_and_with_the_version_that_has_added_it(table) -> None:
    """Not with those that have other files, or none."""
    with lake.FirstSeen(folder_of(table)) as seen:
        append(table, 0, 1)
        append(table, 2)
        with table.transaction() as transaction:
            transaction.set_properties(owner="nobody")
        append(table, 3)
    added = list(seen.added())
    assert [pq.ParquetFile(file).read(columns=["offset"])["offset"].to_pylist() for _, file, _ in added] == [
        [0, 1],
        [2],
        [3],
    ]
    assert [size for _, _, size in added] == [Path(file).stat().st_size for _, file, _ in added]
    assert [at for at, _, _ in added] == sorted({at for at, _, _ in added})
