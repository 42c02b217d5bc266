"""A table that is looked after by the program of docs/delta.md, beside a query that goes on: the query knows its
micro-batches again, no row is lost, and files that failed tasks have left are gone once they are old."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from tests.support.tables.delta_files import QUERY, grown_older, looked_after, micro_batch
from tests.support.tables.table_kinds import committed, expected, files_of, written

BATCHES = [micro_batch(n, (0, 2 * n, 2 * n + 2), (1, n, n + 1)) for n in range(24)]
WEEKS = 8.0


def test_a_query_goes_on_in_a_table_that_is_looked_after(kind) -> None:
    """Its log is cleaned up to the last checkpoint, its files are one, and the query's memory is there. Of what tasks
    have left, the old files are gone, and young ones stay: a driver may be about to commit them."""
    target = kind.target(**{"delta.logRetentionDuration": "interval 1 days"})
    for batch in BATCHES[:12]:
        committed(target, batch)
    (old,) = files_of(target, BATCHES[3])
    grown_older(kind.path, WEEKS)
    (young,) = files_of(target, BATCHES[12])
    looked_after(target.table.location)
    assert not (kind.path / old.path).exists() and (kind.path / young.path).exists()
    assert not (kind.path / "_delta_log" / f"{0:020d}.json").exists()
    assert len(kind.files()) == 1 and kind.last(QUERY) == 11
    assert committed(target, BATCHES[11]).again
    for batch in BATCHES[12:]:
        assert not committed(target, batch).again
    looked_after(target.table.location)
    assert kind.places() == expected(*BATCHES)
    assert committed(kind.target(), BATCHES[-1]).again


@pytest.mark.parametrize("is_named", [True, False], ids=["without the column", "as tables are"])
def test_the_bounds_of_a_compacted_column_with_infinity_hide_rows_unless_it_has_none(kind, is_named) -> None:
    """From Arrow's dataset, by delta-rs 1.6.6: so docs/delta.md names the property that leaves such a column out. The
    second case fails when that is no longer needed."""
    schema = pa.schema([("v", pa.float64()), ("n", pa.int64())])
    properties = {"delta.dataSkippingStatsColumns": "n"} if is_named else {}
    target = kind.target(schema, **properties)
    for number, values in enumerate([[1.0, float("nan")], [7.0, float("inf")]]):
        rows = pa.RecordBatch.from_pydict({"v": values, "n": [number, number]}, schema)
        files = written(target.store(), target.layout, rows)
        target.commit(micro_batch(number, (0, number, number + 1)), files, 2)

    def found() -> int:
        return int(DeltaTable(str(kind.path)).to_pyarrow_dataset().to_table(filter=ds.field("v") > 5).num_rows)

    assert found() == 2
    looked_after(target.table.location)
    assert found() == (2 if is_named else 0)
