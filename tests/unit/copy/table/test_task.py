"""What one task of a query to a table writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import open_store
from spark_eos.copy.source import RangesOfTask, RangeStreamReader
from spark_eos.copy.table import task
from spark_eos.copy.table.plan import TablePlan
from spark_eos.copy.table.task import TableMessage, run_task
from spark_eos.copy.written import LastWritten
from spark_eos.errors import EosError
from spark_eos.options.parse import stream_options
from spark_eos.sink.job import Identity
from spark_eos.tables.files import FileLayout
from spark_eos.topic_partition import OffsetRange

SOURCE = stream_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
SCHEMA = pa.schema({"p": pa.string(), "v": pa.int64()})


def written(folder: Path, patch: pytest.MonkeyPatch, ranges: Iterable[OffsetRange], most: int) -> TableMessage:
    """By a task with these ranges, of which each record is in a partition of the table of its own. ``most``: of the
    layout."""

    def read_range(_: object, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
        offsets = list(range(range_.start, range_.end))
        yield pa.RecordBatch.from_pydict({"p": [f"{range_.partition}-{at}" for at in offsets], "v": offsets}, SCHEMA)

    patch.setattr(task, "read_range", read_range)
    patch.setattr(task.ReadableRanges, "of", lambda self, ranges: iter(ranges))
    patch.setattr(task, "spare_collections", lambda: None)
    store = open_store(str(folder), HadoopSettings({}))
    table: Any = SimpleNamespace(store=lambda: store, layout=FileLayout(SCHEMA, ("p",), most_partitions=most))
    spark = RangeStreamReader(SOURCE, LastWritten()).read(RangesOfTask(tuple(ranges), 1))
    return run_task(TablePlan(SOURCE, "c", table), Identity("q", "r", 0, 0, 0), spark)


def test_ranges_that_share_a_task_have_as_many_partitions_of_the_table_as_apart(tmp_path, monkeypatch):
    """How many share one depends on the cores. One range may not have more."""
    shared = written(tmp_path, monkeypatch, [OffsetRange("t", p, 0, 3) for p in range(4)], 3)
    assert (shared.rows, len(shared.files)) == (12, 12)
    with pytest.raises(EosError, match="more than 3 partitions"):
        written(tmp_path, monkeypatch, [OffsetRange("t", 0, 0, 4)], 3)
