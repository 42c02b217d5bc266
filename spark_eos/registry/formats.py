"""What all formats have in common: a reader turns the bytes of one writer's schema into rows of its one type, a writer
turns rows into bytes. Both mark what does not fit, by its place, and never touch a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from spark_eos.registry.schemas import Schema
from spark_eos.registry.wire import bytes_of


@dataclass(frozen=True)
class Decoded:
    """``rows``: one for each value, null where it is bad. ``bad``: why, by its place."""

    rows: pa.Array
    bad: dict[int, str]


@dataclass(frozen=True)
class Encoded:
    """``values``: binary, one for each row, null where the row is null or bad. ``bad``: why, by its place."""

    values: pa.Array
    bad: dict[int, str]


#: Takes values without nulls, and the number of bytes before each value's own.
Decode = Callable[[pa.Array, np.ndarray], Decoded]


class Reader(Protocol):
    """What values are read as."""

    @property
    def type(self) -> pa.DataType:
        """Of every row, whoever wrote it; Spark has it, too."""

    def of_writer(self, schema: Schema, message: tuple[int, ...]) -> Decode:
        """For values of this schema. ``message``: Protobuf's indexes. Raises EosError where its values cannot be read
        as the reader's."""


class Writer(Protocol):
    """What rows are written as."""

    @property
    def record(self) -> str | None:
        """The full name of the record or message, if it has one."""

    @property
    def message(self) -> tuple[int, ...]:
        """Protobuf's indexes of the message; empty for other formats."""

    def encode(self, rows: pa.Array, prefix: bytes) -> Encoded:
        """The rows' bytes, each after the prefix. Raises EosError where no row of this type could be written."""


def own_bytes(values: pa.Array, begin: np.ndarray) -> pa.Array:
    """The values without the bytes before their own, as binary. There are no nulls."""
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
