"""Record batches decoded before a function of Arrow batches, and encoded behind it: the transform of a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_eos.errors import stop
from spark_eos.registry.decoding import Decoding
from spark_eos.registry.encoding import Encoding

#: Columns of the sink that are no fields of an encoded value.
SINK_COLUMNS = ("key", "topic", "partition", "headers", "timestamp")


@dataclass(frozen=True)
class RegistryTransform:
    """A transform for `spark_eos.copy`: ``function`` between decoding and encoding, by what the driver has fixed.

    ``name``: by which a decision knows it. ``value_in``, ``key_in``: how columns of the records are decoded, in their
    places; ``value_out``, ``key_out``: how columns of the result are encoded; None: as they are. ``drops``: records
    that cannot be decoded are left out; else they raise RowError.
    """

    function: Callable[[pa.RecordBatch], object]
    name: str
    value_in: Decoding | None = None
    key_in: Decoding | None = None
    value_out: Encoding | None = None
    key_out: Encoding | None = None
    drops: bool = False

    def __call__(self, batch: pa.RecordBatch) -> object:
        """The sink's columns. Raises RowError, RegistryError, SchemaError, and what the function raises."""
        result = self.function(self._decoded(batch))
        if self.value_out is None and self.key_out is None:
            return result
        table = _table(result)
        return result if table is None else self._encoded(table)

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.value_in is None and self.key_in is None:
            return batch
        headers = batch.column("headers") if "headers" in batch.schema.names else None
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        bad: dict[int, str] = {}
        for name, decoding in (("key", self.key_in), ("value", self.value_in)):
            if decoding is not None:
                found = decoding.decode(columns[name], headers)
                columns[name] = found.rows
                bad |= {row: f"the {name}: {reason}" for row, reason in found.bad.items()}
        decoded = pa.RecordBatch.from_pydict(columns)
        if not bad:
            return decoded
        if self.drops:
            good = np.ones(batch.num_rows, bool)
            good[list(bad)] = False
            return decoded.filter(pa.array(good))
        first = min(bad)
        place = {name: batch.column(name)[first].as_py() for name in ("topic", "partition", "offset")}
        raise stop("EOS_JOB_MALFORMED_ROW.undecodable", **place, why=bad[first])

    def _encoded(self, table: pa.Table) -> pa.Table:
        if self.value_out is not None and "value" not in table.column_names:
            fields = [name for name in table.column_names if name not in SINK_COLUMNS]
            rows = table.select(fields).to_struct_array()
            table = table.drop_columns(fields).append_column("value", rows)
        for name, encoding in (("value", self.value_out), ("key", self.key_out)):
            if encoding is None:
                continue
            if name not in table.column_names:
                raise stop("EOS_CONFIG_INVALID_VALUE.nothing_to_encode", key="transform", column=name)
            place = table.column_names.index(name)
            table = table.set_column(place, name, encoding.encode_all(_whole(table.column(name))))
        return table


def _table(result: Any) -> pa.Table | None:  # noqa: ANN401  # whatever the function returns
    """As a table; None for what is no Arrow, which the copy refuses."""
    if isinstance(result, pa.RecordBatch):
        return pa.Table.from_batches([result])
    if isinstance(result, pa.Table):
        return result
    return pa.table(result) if hasattr(result, "__arrow_c_stream__") else None


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])
