"""Micro-batches whose rows say which record they are; and the files of Delta tables, by a reader that is not ours."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.pipelines.tables.delta.table import Location
from spark_eos.pipelines.tables.delta.target import DeltaTarget
from spark_eos.pipelines.tables.micro_batch import RangeBatch
from tests.support.runs.page_programs import run_program

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


def add_version(table: Path, *actions: dict[str, Any]) -> int:
    """A version of a Delta table with these actions, whoever might write it; its number."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    version = 1 + max((int(file.stem) for file in log.glob("*[0-9].json")), default=-1)
    (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    return version


def metadata_action(fields: list[dict[str, Any]], properties: Mapping[str, str]) -> dict[str, Any]:
    """The action of a table with these columns, as its schema has them."""
    schema = json.dumps({"type": "struct", "fields": fields})
    form = {"provider": "parquet", "options": {}}
    found = {"id": "an id", "format": form, "schemaString": schema, "partitionColumns": [], "createdTime": 0}
    return {"metaData": found | {"configuration": dict(properties)}}


def read_by_log(files: Mapping[str, bytes]) -> Counter[tuple[int, int]]:
    """Partition and offset of the rows by the JSON of the log's versions and plain Parquet. ``files``: of the table, by
    path."""
    there: set[str] = set()
    for name in sorted(name for name in files if name.startswith("_delta_log/") and name.endswith(".json")):
        actions = [json.loads(line) for line in files[name].decode().splitlines()]
        there -= {action["remove"]["path"] for action in actions if "remove" in action}
        there |= {action["add"]["path"] for action in actions if "add" in action}
    rows = [row for path in there for row in pq.read_table(io.BytesIO(files[unquote(path)])).to_pylist()]
    return Counter((row["partition"], row["offset"]) for row in rows)


def files_in(folder: Path | str) -> dict[str, bytes]:
    """The files below a folder."""
    root = Path(folder)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@dataclass(frozen=True)
class WatchedLocation(Location):
    """``watch``: is given the table each time that it was opened, and returns what is used instead."""

    watch: Callable[[DeltaTable], DeltaTable] = lambda handle: handle

    def open(self, version: int | None = None) -> DeltaTable:
        return self.watch(super().open(version))


def watched(target: DeltaTarget, watch: Callable[[DeltaTable], DeltaTable]) -> DeltaTarget:
    """The table, each handle of which `WatchedLocation` watches."""
    here = target.table.location
    location = WatchedLocation(here.path, here.uri, here.options, here.settings, watch)
    return replace(target, table=replace(target.table, location=location))


def looked_after(location: Location) -> None:
    """Look after the table by the program of docs/delta.md, with this table in it."""
    at = location.uri, None, dict(location.options)
    run_program("delta.md", "vacuum", {'"/data/flights"': "*at"}, at=at)


def grown_older(folder: Path, days: float) -> None:
    """Let the files below a folder be older by so many days."""
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                then = path.stat().st_mtime - days * 24 * 3600
                os.utime(path, (then, then))
