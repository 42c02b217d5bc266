"""The interface of Avro, Protobuf and JSON: a reader turns bytes of any writer's schema into rows of one type, a writer
turns rows into bytes. Both report a value that does not fit by its index; it never affects another value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from spark_eos.errors import stop
from spark_eos.registry.avro import Decoded, Encoded
from spark_eos.registry.schemas import Schema
from spark_eos.registry.wire import bytes_of

__all__ = ["Decode", "Decoded", "Encoded", "Reader", "Writer", "cast", "own_bytes"]

#: Decodes n values without nulls. The second argument: how many bytes of each value to skip, n int64.
Decode = Callable[[pa.Array, np.ndarray], Decoded]


class Reader(Protocol):
    """Reads values of any writer's schema as values of one schema."""

    @property
    def type(self) -> pa.DataType:
        """The type of the rows, one that Spark has, too."""

    def of_writer(self, schema: Schema, message: tuple[int, ...]) -> Decode:
        """The decoder of values that were written with this schema. ``message``: the indexes of a Protobuf message.
        Raises EosError where such values cannot be read as the reader's."""


class Writer(Protocol):
    """Writes rows as values of one schema."""

    @property
    def record(self) -> str | None:
        """The full name of the record or message, if it has one."""

    @property
    def message(self) -> tuple[int, ...]:
        """The indexes of the Protobuf message; empty for other formats."""

    def encode(self, rows: pa.Array, prefix: bytes) -> Encoded:
        """The bytes of each row, after the prefix. Raises EosError where no row of this type could be written."""


def cast(values: pa.Array, wanted: pa.DataType, column: str) -> pa.Array:
    """The values as this type. Raises RegistryError (EOS_REGISTRY_SCHEMA), with the column's name, where Arrow cannot
    cast them."""
    try:
        return values.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        given = values.type
        raise stop("EOS_REGISTRY_SCHEMA.type", column=column, type=given, wanted=wanted, error=error) from None


def own_bytes(values: pa.Array, begin: np.ndarray) -> pa.Array:
    """The values, without nulls, as binary from byte ``begin`` of each on (n int64)."""
    if not begin.any():
        return values.cast(pa.binary())
    # Not by Arrow's binary_slice, whose buffers have a negative size where the slices are short (Arrow 26).
    texts = bytes_of(values)
    first = int(texts.start[0])
    keep = np.ones(int(texts.end[-1]) - first, bool)
    for number in range(int(begin.max())):
        keep[(texts.start - first + number)[begin > number]] = False
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(texts.end - texts.start - begin, out=offsets[1:])
    data = texts.data[first : int(texts.end[-1])][keep]
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
