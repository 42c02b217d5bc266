"""A table that is looked after by the program of docs/delta.md, beside a query that goes on: the query knows its
micro-batches again, no row is lost, and files that failed tasks have left are gone once they are old."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.pipelines.tables.delta.creation import known
from spark_eos.pipelines.tables.delta.table import Location, location_of
from spark_eos.pipelines.tables.delta.target import DeltaReference
from spark_eos.pipelines.tables.files import DataFile, FileAttempt, FileWriter
from tests.support.servers.s3_stand_in import s3_stand_in
from tests.support.tables.delta_files import (
    QUERY,
    SCHEMA,
    committed,
    expected,
    grown_older,
    looked_after,
    micro_batch,
    read_by_deltalake,
    targeted,
)
from tests.support.tables.table_kinds import files_of

BATCHES = [micro_batch(n, (0, 2 * n, 2 * n + 2), (1, n, n + 1)) for n in range(24)]
WEEKS = 8.0


def left_by_a_task(location: Location, batch: int) -> Path:
    """A file of a task that was killed."""
    (file,) = files_of(DeltaReference(location).target(SCHEMA, create=False), micro_batch(batch, (0, 0, 1)))
    return Path(location.uri, file.path)


def test_a_query_goes_on_in_a_table_that_is_looked_after(tmp_path) -> None:
    """Its log is cleaned up to the last checkpoint, its files are one, and the query's memory is there. Of what tasks
    have left, the old files are gone, and young ones stay: a driver may be about to commit them."""
    properties = {"delta.logRetentionDuration": "interval 1 days"}
    table = known(location_of(str(tmp_path / "t"), HadoopSettings()), SCHEMA, (), properties)
    location = table.location
    for batch in BATCHES[:12]:
        committed(table, batch)
    old = left_by_a_task(location, 3)
    grown_older(location, WEEKS)
    young = left_by_a_task(location, 12)
    looked_after(location)
    handle = DeltaTable(location.uri)
    assert not old.exists() and young.exists()
    assert not Path(location.uri, "_delta_log", f"{0:020d}.json").exists()
    assert len(handle.file_uris()) == 1 and handle.transaction_version(QUERY) == 11
    assert committed(table, BATCHES[11]).again
    for batch in BATCHES[12:]:
        assert not committed(table, batch).again
    looked_after(location)
    found = read_by_deltalake(location)
    assert found == expected(*BATCHES)
    uris = DeltaTable(location.uri).file_uris()
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet({uris!r})").fetchall() == [(found.total(),)]
    assert committed(known(location, SCHEMA), BATCHES[-1]).again


def test_a_table_on_s3_is_looked_after(tmp_path) -> None:
    """By the options that delta-rs has for it. The store says of all files that they are old."""
    with s3_stand_in() as store:
        table = known(store.location("t"), SCHEMA)
        for batch in BATCHES[:3]:
            committed(table, batch, lambda path, content: store.keep(f"t/{path}", content))
        store.keep(f"t/eos-{QUERY}-1-0-1-0123456789abcdef.parquet", b"of a task that was killed")
        looked_after(table.location)
        assert not [key for key in store.objects if key.startswith("t/eos-")]
        assert read_by_deltalake(table.location) == expected(*BATCHES[:3])
        assert targeted(table).commit(BATCHES[2], [], 0).again


@pytest.mark.parametrize("is_named", [True, False], ids=["without the column", "as tables are"])
def test_the_bounds_of_a_compacted_column_with_infinity_hide_rows_unless_it_has_none(tmp_path, is_named) -> None:
    """From Arrow's dataset, by delta-rs 1.6.6: so docs/delta.md names the property that leaves such a column out. The
    second case fails when that is no longer needed."""
    schema = pa.schema([("v", pa.float64()), ("n", pa.int64())])
    properties = {"delta.dataSkippingStatsColumns": "n"} if is_named else {}
    location = location_of(str(tmp_path / "t"), HadoopSettings())
    target = DeltaReference(location, (), properties).target(schema, create=True)
    for number, values in enumerate([[1.0, float("nan")], [7.0, float("inf")]]):
        rows = pa.RecordBatch.from_pydict({"v": values, "n": [number, number]}, schema)
        target.commit(micro_batch(number, (0, number, number + 1)), [written(target, rows)], 2)

    def found() -> int:
        return int(DeltaTable(location.uri).to_pyarrow_dataset().to_table(filter=ds.field("v") > 5).num_rows)

    assert found() == 2
    looked_after(location)
    assert found() == (2 if is_named else 0)


def written(target, rows: pa.RecordBatch) -> DataFile:
    with FileWriter(target.store(), target.layout, FileAttempt("q", 0, 0, 0)) as writer:
        writer.write(rows)
        (file,) = writer.close()
    return file
