"""An Iceberg table at one snapshot, by pyiceberg.

The commits of a query are in the summary of the snapshot of its tag ``eos-QUERY``: ``spark-eos.ranges`` is JSON of
``topic/partition`` → [first offset, end].
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.errors import stop

if TYPE_CHECKING:
    from spark_eos.tools.verify.tables import TableAddress

_REMOVES = ("delete", "overwrite")


class IcebergSnapshot:
    """See `spark_eos.tools.verify.tables.Snapshot`."""

    def __init__(self, address: TableAddress) -> None:
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError:
            raise stop(
                "EOS_NOT_INSTALLED.extra", use=f"Reading {address!s}", modules="pyiceberg", extra="iceberg"
            ) from None
        self._address, self._secrets = address, dict[str, str]()
        given = address.settings
        properties = {name.removeprefix("catalog."): given[name] for name in given if name.startswith("catalog.")}
        with self._address.refused(self._secrets):
            catalog = load_catalog(given.get("catalog", "default"), **properties)
            self._secrets |= {name: str(value) for name, value in catalog.properties.items()}
            self._table = catalog.load_table(address.name)
            self._secrets |= {name: str(value) for name, value in self._table.io.properties.items()}

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self._table.schema().fields]

    def rows(self) -> int:
        with self._address.refused(self._secrets):
            return sum(task.file.record_count for task in self._table.scan().plan_files())

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        with self._address.refused(self._secrets):
            table, scan = self._table, self._table.scan(selected_fields=tuple(columns))
            reader = ArrowScan(table.metadata, table.io, scan.projection(), AlwaysTrue())
            for task in scan.plan_files():  # one by one: of several, it reads all at once
                yield from reader.to_record_batches([task])

    def ends(self, query: str, partitions: Mapping[str, Iterable[int]]) -> PartitionOffsets | None:
        with self._address.refused(self._secrets):
            tag = self._table.refs().get(f"eos-{query}")
            snapshot = None if tag is None else self._table.snapshot_by_id(tag.snapshot_id)
            if snapshot is None or snapshot.summary is None or "spark-eos.ranges" not in snapshot.summary:
                return None
            ranges = json.loads(str(snapshot.summary["spark-eos.ranges"]))
        return {topic: {p: ranges.get(f"{topic}/{p}", (0, 0))[1] for p in of} for topic, of in partitions.items()}

    def removals(self) -> list[str]:
        """Return commits of snapshots that have not expired."""
        operations = [
            (each.snapshot_id, each.summary.operation.value) for each in self._table.snapshots() if each.summary
        ]
        return [f"snapshot {id_}, {operation}" for id_, operation in operations if operation in _REMOVES]
