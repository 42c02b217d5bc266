"""What one task of a query to a table writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import open_store
from spark_eos.errors import EosError
from spark_eos.options.parse import stream_options
from spark_eos.pipelines.copy.table import task
from spark_eos.pipelines.copy.table.plan import TablePlan
from spark_eos.pipelines.copy.table.task import TableMessage, write_files
from spark_eos.pipelines.tables.files import FileLayout
from spark_eos.pipelines.tables.keys import Key
from spark_eos.pipelines.tables.partitions import NULL
from spark_eos.sink.job import Identity
from spark_eos.source.range_reader import RangesOfTask, TaskRangeReader

SOURCE = stream_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
SCHEMA = pa.schema({"p": pa.string(), "v": pa.int64()})


def written(
    folder: Path,
    patch: pytest.MonkeyPatch,
    ranges: Iterable[OffsetRange],
    layout: FileLayout,
    column: Callable[[OffsetRange, int], object],
) -> TableMessage:
    """By a task with these ranges. ``column``: the value of ``p`` of the record at an offset."""

    def read_range(_: object, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
        offsets = list(range(range_.start, range_.end))
        values = pa.array([column(range_, at) for at in offsets], layout.schema.field("p").type)
        places = {"topic": ["t"] * len(offsets), "partition": [range_.partition] * len(offsets), "offset": offsets}
        yield pa.RecordBatch.from_pydict({"p": values, "v": offsets, **places})

    patch.setattr(task.ReadableRanges, "records", read_range)
    patch.setattr(task.ReadableRanges, "parts", lambda self, ranges: iter(ranges))
    patch.setattr(task, "spare_collections", lambda: None)
    store = open_store(str(folder), HadoopSettings({}))
    table: Any = SimpleNamespace(store=lambda: store, layout=layout)
    spark = TaskRangeReader().read(RangesOfTask(tuple(ranges), 1))
    return write_files(TablePlan(SOURCE, "c", table), Identity("q", "r", 0, 0, 0), spark)


def test_ranges_that_share_a_task_have_as_many_partitions_of_the_table_as_apart(tmp_path, monkeypatch):
    """How many share one depends on the cores. One range may not have more."""
    layout = FileLayout(SCHEMA, ("p",), most_partitions=3)

    def each(range_: OffsetRange, at: int) -> str:
        return f"{range_.partition}-{at}"

    shared = written(tmp_path, monkeypatch, [OffsetRange("t", p, 0, 3) for p in range(4)], layout, each)
    assert (shared.rows, len(shared.files)) == (12, 12)
    with pytest.raises(EosError, match="more than 3 partitions"):
        written(tmp_path, monkeypatch, [OffsetRange("t", 0, 0, 4)], layout, each)


TIMES = pa.schema({"p": pa.timestamp("us", "UTC"), "v": pa.int64()})
NUMBERS = pa.schema({"p": pa.int32(), "v": pa.int64()})


@pytest.mark.parametrize(
    ("layout", "worst", "says"),
    [
        (FileLayout(TIMES, keys=(Key("p_day", "p", "day"),)), 253_402_300_800_000_000, "year is not between"),
        (FileLayout(TIMES, ("p",)), 253_402_300_800_000_000, "year is not between"),
        (FileLayout(TIMES), 253_402_300_800_000_000, "year is not between"),
        (FileLayout(NUMBERS, keys=(Key("p_trunc", "p", "truncate[10]"),)), -(1 << 31), "rounded down"),
        (FileLayout(SCHEMA, ("p",)), NULL, "take it for null"),
        (FileLayout(SCHEMA, ("p",)), "x" * 300, "255 bytes"),
    ],
)
def test_a_record_that_cannot_be_in_a_table_or_a_partition_is_named(tmp_path, monkeypatch, layout, worst, says):
    """By its offset, also where records are written as they are."""
    good = "a" if layout.schema is SCHEMA else 5
    with pytest.raises(EosError, match=r"offset 7 of t-3: the table cannot hold its row: column p: ") as error:
        ranges = [OffsetRange("t", 3, 0, 20)]
        written(tmp_path, monkeypatch, ranges, layout, lambda _, at: worst if at in (7, 11) else good)
    assert error.value.condition == "EOS_RECORD_REJECTED" and says in error.value.message
    assert not list(tmp_path.rglob("*.parquet"))
