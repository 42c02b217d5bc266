"""Encodes columns as Avro datums. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_eos.pipelines.registry.avro.cells import constant, join
from spark_eos.pipelines.registry.avro.cursor import Verdicts
from spark_eos.pipelines.registry.avro.plan import plan
from spark_eos.pipelines.registry.avro.schema import Schema, name_of
from spark_eos.pipelines.registry.avro.texts import null_but_where
from spark_eos.pipelines.registry.avro.writers import Lanes

#: Rows that are encoded together.
_CHUNK_ROWS = 16_384


@dataclass(frozen=True)
class EncodedValues:
    """Encoded rows. ``values``: binary, n values; null where the row is null or bad. ``bad``: row → why it cannot be
    written."""

    values: pa.BinaryArray
    bad: dict[int, str]


class DatumEncoder:
    """Writes values of an Arrow type as datums of a schema; several threads can use it.

    ``type``: `arrow_type` of the schema, or another type that `plan` accepts. Raises SchemaError for any other type.
    ``sized=False``: of a schema that is ``bytes``, write the bytes without their size.
    """

    def __init__(self, schema: Schema, type: pa.DataType, *, sized: bool = True) -> None:
        self._sized = sized
        self._writer = plan(schema, type, name_of(schema).rpartition(".")[2])

    def encode(self, rows: pa.Array, prefix: bytes = b"") -> EncodedValues:
        """Encode n rows as datums, each after ``prefix``.

        A row is bad if the schema cannot hold a value of it: null where the schema has no null, a number out of range,
        a decimal with too many digits, a text that is no symbol, bytes of another size, a map with a key twice.
        """
        verdicts = Verdicts(np.zeros(len(rows), np.int32))
        parts = [
            self._part(rows.slice(begin, _CHUNK_ROWS), begin, prefix, verdicts)
            for begin in range(0, len(rows), _CHUNK_ROWS)
        ]
        values = pa.concat_arrays(parts) if parts else pa.array([], pa.binary())
        good = rows.is_valid().to_numpy(zero_copy_only=False) & (verdicts.codes == 0)
        return EncodedValues(values if good.all() else null_but_where(good, values), verdicts.by_row())

    def _part(self, rows: pa.Array, begin: int, prefix: bytes, verdicts: Verdicts) -> pa.BinaryArray:
        count = len(rows)
        live = rows.is_valid().to_numpy(zero_copy_only=False) if rows.null_count else None
        lanes = Lanes(np.arange(begin, begin + count), live, verdicts)
        parts = self._writer.write(rows, lanes)
        if not self._sized:
            parts = parts[1:]  # all writers of bytes write the size first
        return join([constant(prefix, count), *parts] if prefix else parts, count)
