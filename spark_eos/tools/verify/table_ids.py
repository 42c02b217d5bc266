"""Ids and values of a table's rows, as bytes, as topics have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from spark_eos.errors import stop
from spark_eos.tools.verify.comparison import IdPlace

#: The types whose values have a text that is the same everywhere.
_AS_TEXT = (
    *(types.is_string_view, types.is_large_string, types.is_integer, types.is_boolean, types.is_date32, types.is_null),
)
#: Where a table that was written by a copy without a transform has keys and values.
_KEY, VALUE = "key", "value"


@dataclass(frozen=True)
class TableIds:
    """Gets ids from batches. ``columns``: the columns that it needs; ``topic``: of all rows, where no column has it.
    ``table``: for messages."""

    table: str
    id_place: IdPlace
    columns: tuple[str, ...]
    topic: str | None = None

    @classmethod
    def at(cls, table: str, id_place: IdPlace, there: Sequence[str], topics: Sequence[str]) -> TableIds:
        """Find the columns with the ids. ``there``: the table's columns; ``topics``: from which its rows may come.
        Raises CommandError (EOS_VERIFY_IMPOSSIBLE) where a column is missing."""
        if id_place.kind == "column":
            needed = [id_place.name]
        elif id_place.kind == "place":
            needed = id_place.name.split(",") if id_place.name else ["topic", "partition", "offset"]
            if not id_place.name and "topic" not in there:
                del needed[0]
        else:
            needed = [_KEY if id_place.kind == "key" else VALUE]
        check_columns(table, needed, there)
        # Of topic, partition and offset, the last two are numbers.
        is_placed = id_place.kind == "place" and len(needed) == 2
        if is_placed and len(topics) > 1:
            raise stop("EOS_VERIFY_IMPOSSIBLE.no_topic", table=table, topics=", ".join(topics))
        return cls(table, id_place, tuple(needed), topics[0] if is_placed else None)

    def ids(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """Return the id of each row; None where it has none. Raises CommandError (EOS_VERIFY_IMPOSSIBLE)."""
        texts = [self._texts(name, batch.column(name)) for name in self.columns]
        if self.id_place.kind == "place":
            *topic, partition, offset = (each.cast(pa.string()) for each in texts)
            before = topic[0] if topic else pa.scalar(self.topic)
            return _bytes(pc.binary_join_element_wise(before, "-", partition, "@", offset, ""))
        return self.id_place.in_json(_bytes(texts[0])) if self.id_place.kind == "json" else _bytes(texts[0])

    def values(self, batch: pa.RecordBatch) -> list[bytes | None]:
        """Return the values of the column ``value``."""
        return _bytes(self._texts(VALUE, batch.column(VALUE)))

    def _texts(self, name: str, column: pa.Array) -> pa.Array:
        """Convert to text or bytes: numbers in decimal, booleans as in JSON, dates as 2026-01-31."""
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        kind = column.type
        if types.is_string(kind) or types.is_binary(kind):
            return column
        if types.is_binary_view(kind) or types.is_large_binary(kind):
            return column.cast(pa.binary())
        if any(is_one(kind) for is_one in _AS_TEXT):
            return column.cast(pa.string())
        raise stop("EOS_VERIFY_IMPOSSIBLE.id_column", table=self.table, column=name, why=f"its type is {kind}")


def check_columns(table: str, needed: Sequence[str], there: Sequence[str]) -> None:
    """Raise CommandError (EOS_VERIFY_IMPOSSIBLE) where the table lacks a column."""
    for name in needed:
        if name not in there:
            raise stop(
                "EOS_VERIFY_IMPOSSIBLE.id_column", table=table, column=name, why=f"its columns are {', '.join(there)}"
            )


def _bytes(column: pa.Array) -> list[bytes | None]:
    values: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return values
