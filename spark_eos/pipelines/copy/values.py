"""Keys and values with the schemas of a registry around a transform past the JVM: decode, transform, encode.

Whole columns are decoded and encoded. A record whose key or value cannot be decoded, or whose row the schema cannot
hold, is rejected as by the transform itself (`spark_eos.pipelines.copy.transforming`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.errors import stop
from spark_eos.pipelines.copy.plan import Function
from spark_eos.pipelines.copy.transforming import ERROR, OFFSET, as_batch, as_column, reasons_by_row
from spark_eos.pipelines.registry.decoding import Decoding
from spark_eos.pipelines.registry.encoding import Encoding
from spark_eos.pipelines.registry.unknown_ids import UnknownIds
from spark_eos.pipelines.registry.wire import HEADERS, without_headers
from spark_eos.spi import Columns

#: Columns of a result that are no fields of an encoded value.
_BESIDE = (*Columns.BESIDE_VALUE, ERROR, OFFSET)


@dataclass(frozen=True)
class SchemaTransform:
    """A transform of decoded records. ``function``: takes batches with decoded key and value, and None passes these on;
    ``decode`` and ``encode``: by ``key`` and ``value``, unless they are bytes. ``unknown_ids``: of the range that it is
    for (`for_range`), by key and value. ``to_table``: all columns that the function returns are for the table; without
    a function, all of the source's.

    To encode a value, the function returns a column ``value`` of the schema's type, or its fields as columns.
    """

    function: Function | None
    function_name: str
    decode: Mapping[str, Decoding] = field(default_factory=dict)
    encode: Mapping[str, Encoding] = field(default_factory=dict)
    unknown_ids: Mapping[str, UnknownIds] = field(default_factory=dict, compare=False, repr=False)
    to_table: bool = False

    def __post_init__(self) -> None:
        """Tell each decoder its column, as a key's schema id is in another header than a value's."""
        right = {column: replace(one, key=column == "key") for column, one in self.decode.items()}
        object.__setattr__(self, "decode", right)

    def for_range(self, noted: Collection[str] | None) -> SchemaTransform:
        """See `spark_eos.pipelines.copy.plan.ByRange`."""
        own = {column: None if noted is None else _of_column(noted, column) for column in self.decode}
        return replace(self, unknown_ids={column: UnknownIds(names) for column, names in own.items()})

    @property
    def unknown(self) -> tuple[str, ...]:
        """See `spark_eos.pipelines.copy.plan.ByRange`: each of `UnknownIds.names` behind its column, as in ``value
        17..99``."""
        return tuple(sorted(f"{column} {name}" for column, ids in self.unknown_ids.items() for name in ids.names))

    @property
    def name(self) -> str:
        """The name by which a decision knows the transform: with other schemas, it is another one."""
        ways: list[tuple[str, Decoding | Encoding]] = [*self.decode.items(), *self.encode.items()]
        schemas = [(column, type(one).__name__, one.registered.schema.fingerprint, one.message) for column, one in ways]
        return f"{self.function_name}+{hashlib.sha256(repr(sorted(schemas, key=repr)).encode()).hexdigest()[:16]}"

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        result, rejected = self._applied(batch, tolerant=False)
        for row, reason in sorted(rejected.items()):
            at = {name: batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")}
            raise stop("EOS_RECORD_REJECTED.record", **at, reason=reason)
        return result

    def rejecting(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the rows of the records that it takes, and the reason for each of the others, by its number in the
        batch."""
        return self._applied(batch, tolerant=True)

    def _applied(self, batch: pa.RecordBatch, *, tolerant: bool) -> tuple[pa.RecordBatch, dict[int, str]]:
        decoded, rejected = self._decoded(batch)
        taken = np.arange(batch.num_rows)
        if rejected:
            taken = np.delete(taken, sorted(rejected))
            decoded = decoded.take(pa.array(taken))
        result, failed = self._transformed(decoded, tolerant=tolerant)
        rejected |= {int(taken[row]): reason for row, reason in failed.items()}
        if self.to_table:
            return result, rejected
        rows, unfit = self._encoded(result)
        return rows, {**rejected, **reasons_by_row(batch, unfit)}

    def _decoded(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the batch with decoded columns, and the reasons why rows cannot be decoded, by their index."""
        bad: dict[int, str] = {}
        headers = batch.column("headers") if "headers" in batch.schema.names else None
        for column, decoding in self.decode.items():
            decoded = decoding.decode(batch.column(column), headers, self.unknown_ids.get(column))
            batch = batch.set_column(batch.schema.get_field_index(column), column, decoded.rows)
            for row, reason in decoded.bad.items():
                bad.setdefault(row, f"the {column}: {reason}")
        return batch, bad

    def _transformed(self, batch: pa.RecordBatch, *, tolerant: bool) -> tuple[pa.RecordBatch, dict[int, str]]:
        if self.function is None and self.to_table:
            return batch, {}
        if self.function is None:
            kept = [name for name in batch.schema.names if name in (*Columns.NAMES, OFFSET) and name != "topic"]
            return batch.select(kept), {}
        rejecting = getattr(self.function, "rejecting", None) if tolerant else None
        result, failed = (self.function(batch), {}) if rejecting is None else rejecting(batch)
        return as_batch(result), dict(failed)

    def _encoded(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Return the rows with key and value as bytes, and the reasons for rows that the schemas cannot hold, by the
        offsets of their records. Raises RowError where the rows do not say these, and SchemaError."""
        if "value" in self.encode and "value" not in rows.schema.names:
            rows = _with_value(rows)
        rows = self._without_old_headers(rows)
        bad: dict[int, str] = {}
        for column, encoding in self.encode.items():
            if column not in rows.schema.names:
                raise stop("EOS_SCHEMA_INVALID.value", column=column, where=" in the transform's result", why="")
            encoded = encoding.encode(rows.column(column))
            rows = rows.set_column(rows.schema.get_field_index(column), column, encoded.values)
            for row, reason in encoded.bad.items():
                bad.setdefault(row, f"the {column}: {reason}")
        has_offset = OFFSET in rows.schema.names
        if bad and not has_offset:
            subject = next(iter(self.encode.values())).registered.subject
            raise stop("EOS_VALUE_MALFORMED.write", subject=subject, reason=bad[min(bad)])
        offsets = {row: rows.column(OFFSET)[row].as_py() for row in bad}
        if has_offset and ERROR not in rows.schema.names:
            rows = rows.drop_columns([OFFSET])
        if bad:
            fit = np.ones(rows.num_rows, bool)
            fit[sorted(bad)] = False
            if ERROR in rows.schema.names:  # a row that the transform has rejected itself need not fit
                own = rows.column(ERROR).is_valid().to_numpy(zero_copy_only=False)
                bad = {row: reason for row, reason in bad.items() if not own[row]}
                fit |= own
            rows = rows.filter(pc.fill_null(pa.array(fit), False))
        return rows, {offsets[row]: reason for row, reason in bad.items()}

    def _without_old_headers(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Remove headers that name the source's schemas: no decoded or encoded column has its bytes any more, and
        consumers would go by the header first. Raises SchemaError for a column that has no headers."""
        old = [HEADERS[column] for column in {*self.decode, *self.encode}]
        index = rows.schema.get_field_index("headers")
        if index < 0 or not old:
            return rows
        headers = as_column("headers", rows.column(index))  # which may be a map until then
        return rows.set_column(index, "headers", without_headers(headers, old))


def _of_column(noted: Collection[str], column: str) -> list[str]:
    """Return the runs of one column in `SchemaTransform.unknown`."""
    return [name for of, _, name in (each.partition(" ") for each in noted) if of == column]


def _with_value(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns that are none of the sink's, as the fields of ``value``."""
    fields = [name for name in rows.schema.names if name not in _BESIDE]
    value = pa.StructArray.from_arrays([rows.column(name) for name in fields], fields=[rows.field(n) for n in fields])
    return rows.drop_columns(fields).append_column("value", value)
