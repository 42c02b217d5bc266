"""Delta tables without Spark, for the tests: rows that say which record they are, files of them, and two readers."""

from __future__ import annotations

import contextlib
import io
import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from spark_eos.base import system
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.pipelines.tables.commit import Outcome
from spark_eos.pipelines.tables.delta.table import Location, Table
from spark_eos.pipelines.tables.delta.target import DeltaTarget
from spark_eos.pipelines.tables.files import DataFile, FileLayout
from spark_eos.pipelines.tables.micro_batch import RangeBatch
from tests.support.runs.page_programs import run_program
from tests.support.waiting import TIMEOUT

SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
QUERY = "5f0c4d6e-query"

#: Topic, partition and offset of a row.
Record = tuple[str, int, int]


def micro_batch(number: int, *ranges: tuple[int, int, int], topic: str = "t", query: str = QUERY) -> RangeBatch:
    """``ranges``: of a partition, from an offset to an end."""
    return RangeBatch(query, number, tuple(OffsetRange(topic, p, start, end, "an id") for p, start, end in ranges))


#: Micro-batches that follow one another.
FIRST = micro_batch(0, (0, 0, 3), (1, 0, 2))
SECOND = micro_batch(1, (0, 3, 5))
THIRD = micro_batch(2, (0, 5, 6))


def records(batch: RangeBatch) -> list[Record]:
    """Those that the micro-batch reads."""
    return [(r.topic, r.partition, offset) for r in batch.ranges for offset in range(r.start, r.end)]


#: Keeps a file of a table, by its path in it.
Keep = Callable[[str, bytes], None]


def on_disk(location: Location) -> Keep:
    """In the table's folder."""

    def keep(path: str, content: bytes) -> None:
        Path(location.uri, path).write_bytes(content)

    return keep


def written(keep: Keep, rows: Iterable[Record]) -> DataFile:
    """A file with these rows, which no commit names yet."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    data = pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)
    path = f"part-{uuid.uuid4().hex}.parquet"
    sink = io.BytesIO()
    pq.write_table(data, sink)
    content = sink.getvalue()
    keep(path, content)
    return DataFile(path, len(content), data.num_rows, int(system.time_of_day() * 1000))


def files_of(keep: Keep, batch: RangeBatch) -> list[DataFile]:
    """The micro-batch's rows, a file for each range."""
    return [written(keep, records(RangeBatch(batch.query, batch.number, (one,)))) for one in batch.ranges if one.size]


def add_columns(table: Table, schema: pa.Schema, patience_s: float = TIMEOUT) -> Table:
    """The table with these columns, of which it is given those that it lacks."""
    return targeted(table).evolved(schema, patience_s=patience_s).table


def targeted(table: Table, **more: Any) -> DeltaTarget:
    """The table, as a query writes to it."""
    return DeltaTarget(table, FileLayout(SCHEMA), **more)


def committed(table: Table, batch: RangeBatch, keep: Keep | None = None, **more: Any) -> Outcome:
    """The outcome for a micro-batch whose files were written just now."""
    files = files_of(keep or on_disk(table.location), batch)
    return targeted(table, **more).commit(batch, files, len(records(batch)), patience_s=TIMEOUT)


def expected(*batches: RangeBatch) -> Counter[Record]:
    """The rows of these micro-batches, each once."""
    return Counter(record for batch in batches for record in records(batch))


def read_by_deltalake(location: Location) -> Counter[Record]:
    """The rows as delta-rs reads the table."""
    table = DeltaTable(location.uri, storage_options=dict(location.options))
    return _counted(table.to_pyarrow_table(columns=SCHEMA.names))


def read_by_log(files: Mapping[str, bytes]) -> Counter[Record]:
    """The rows by the JSON of the log's versions and plain Parquet. ``files``: of the table, by path."""
    there: set[str] = set()
    for name in sorted(name for name in files if name.startswith("_delta_log/") and name.endswith(".json")):
        actions = [json.loads(line) for line in files[name].decode().splitlines()]
        there -= {action["remove"]["path"] for action in actions if "remove" in action}
        there |= {action["add"]["path"] for action in actions if "add" in action}
    found: Counter[Record] = Counter()
    for path in there:
        found += _counted(pq.read_table(io.BytesIO(files[unquote(path)])).select(SCHEMA.names))
    return found


def files_in(folder: Path | str) -> dict[str, bytes]:
    """The files below a folder."""
    root = Path(folder)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def looked_after(location: Location) -> None:
    """Look after the table by the program of docs/delta.md, with this table in it."""
    at = location.uri, None, dict(location.options)
    run_program("delta.md", "vacuum", {'"/data/flights"': "*at"}, at=at)


def grown_older(location: Location, days: float) -> None:
    """Let the files of a table on a local disk be older by so many days."""
    for path in Path(location.uri).rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                then = path.stat().st_mtime - days * 24 * 3600
                os.utime(path, (then, then))


def _counted(table: pa.Table) -> Counter[Record]:
    return Counter((row["topic"], row["partition"], row["offset"]) for row in table.to_pylist())
