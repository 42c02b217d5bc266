"""The interface of Avro, Protobuf and JSON: a reader turns bytes of any writer's schema into rows of one type, a writer
turns rows into bytes. Both report a value that does not fit by its index; it never affects another value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyarrow import types

from spark_eos.errors import stop
from spark_eos.pipelines.registry.avro import DecodedValues, EncodedValues
from spark_eos.pipelines.registry.avro.schema import MOST_NODES
from spark_eos.pipelines.registry.schemas import Kind, Schema, too_large
from spark_eos.pipelines.registry.wire import bytes_of

__all__ = [
    "Decode",
    "DecodedValues",
    "EncodedValues",
    "Reader",
    "Size",
    "Writer",
    "cast",
    "casts",
    "damaged",
    "kept",
    "own_bytes",
]

#: The most levels of types within one another; Arrow's messages, by which Spark sends columns, have at most 63.
MOST_LEVELS = 60
#: Decodes n values without nulls. The second argument: how many bytes of each value to skip, n int64.
Decode = Callable[[pa.Array, np.ndarray], DecodedValues]


class Reader(Protocol):
    """Reads values of any writer's schema as values of one schema."""

    @property
    def type(self) -> pa.DataType:
        """The type of the rows, one that Spark has, too."""

    def of_writer(self, schema: Schema, message: tuple[int, ...]) -> Decode:
        """Return the decoder of values that were written with this schema. ``message``: the indexes of a Protobuf
        message. Raises EosError where such values cannot be read as the reader's."""


class Writer(Protocol):
    """Writes rows as values of one schema."""

    @property
    def record(self) -> str | None:
        """The full name of the record or message, if it has one."""

    @property
    def message(self) -> tuple[int, ...]:
        """The indexes of the Protobuf message; empty for other formats."""

    def encode(self, rows: pa.Array, prefix: bytes) -> EncodedValues:
        """Return the bytes of each row, after the prefix. Raises EosError where no row of this type could be
        written."""


@dataclass(frozen=True)
class Size:
    """The size of a type. ``nodes``: the types in it, each counted as often as it is used; ``levels``: of types within
    one another."""

    nodes: int = 1
    levels: int = 1

    @staticmethod
    def around(inner: Iterable[Size], kind: Kind) -> Size:
        """Return the size of a type with these types in it. Raises RegistryError (EOS_REGISTRY_SCHEMA) where it is too
        large: a short schema, in which each type uses the next one twice, is a huge type."""
        sizes = list(inner)
        nodes, levels = 1 + sum(each.nodes for each in sizes), 1 + max((each.levels for each in sizes), default=0)
        if nodes > MOST_NODES:
            raise too_large(kind, MOST_NODES, "types, counting each as often as it is used")
        if levels > MOST_LEVELS:
            raise too_large(kind, MOST_LEVELS, "levels of types within one another")
        return Size(nodes, levels)


def cast(values: pa.Array, wanted: pa.DataType, column: str) -> tuple[pa.Array, list[int]]:
    """Cast the values to this type. Returns also the indexes of values that the type cannot hold, such as numbers out
    of its range, which become null. Raises RegistryError (EOS_REGISTRY_SCHEMA), with the column's name, for a type that
    a cast would alter in any case: only integers, shorter floats, decimals of no more digits behind the point, and
    Arrow's other types of the same texts, bytes, times and lists are taken."""
    misfit = _misfit(values.type, wanted, column)
    if misfit is not None:
        path, given, needed = misfit
        raise stop("EOS_REGISTRY_SCHEMA.type", column=path, type=given, wanted=needed)
    try:
        return values.cast(wanted), []
    except pa.ArrowInvalid:
        bad = list(damaged(values, lambda piece: casts(piece, wanted)))
    good = np.ones(len(values), bool)
    good[bad] = False
    return kept(values, good).cast(wanted), bad


def kept(values: pa.Array, keep: np.ndarray) -> pa.Array:
    """Return the values where ``keep`` is true, and null elsewhere."""
    return values if keep.all() else values.take(pa.array(np.arange(len(values)), mask=~keep))


def casts(values: pa.Array, wanted: pa.DataType) -> bool:
    """Tell whether all values have an equal one of this type, to which their own type may be cast."""
    # Of a slice of lists, Arrow casts all items to the end of the whole column: `take` leaves the others out.
    return _casts(values, wanted) or _casts(values.take(pa.array(np.arange(len(values)))), wanted)


def _casts(values: pa.Array, wanted: pa.DataType) -> bool:
    try:
        values.cast(wanted)
    except pa.ArrowInvalid:
        return False
    return True


def damaged(values: pa.Array, whole: Callable[[pa.Array], bool], first: int = 0) -> Iterator[int]:
    """Find the damaged values by bisection: their indexes, of which the first value has ``first``. ``whole``: whether
    none of some values is damaged."""
    if whole(values):
        return
    if len(values) == 1:
        yield first
        return
    middle = len(values) // 2
    yield from damaged(values.slice(0, middle), whole, first)
    yield from damaged(values.slice(middle), whole, first + middle)


def _misfit(given: pa.DataType, wanted: pa.DataType, path: str) -> tuple[str, pa.DataType, pa.DataType] | None:
    """Return the path of a field, at any depth, whose values would differ as ``wanted``, and its two types; None if
    there is none. Fields that ``wanted`` lacks are left to `lost_field`."""
    if types.is_dictionary(given):
        given = given.value_type
    if given == wanted or types.is_null(given):
        return None
    pairs = _pairs(given, wanted, path)
    if pairs is None:
        return None if _holds(wanted, given) else (path, given, wanted)
    return next(filter(None, (_misfit(*pair) for pair in pairs)), None)


def _pairs(given: pa.DataType, wanted: pa.DataType, path: str) -> list[tuple[pa.DataType, pa.DataType, str]] | None:
    """Return the types within two nested types, with their paths; None for other types, and a struct with a name
    twice."""
    if types.is_struct(given) and types.is_struct(wanted):
        if len({field.name for field in given}) < given.num_fields:
            return None
        theirs = {field.name: field.type for field in wanted}
        return [(one.type, theirs[one.name], f"{path}.{one.name}") for one in given if one.name in theirs]
    if types.is_map(given) and types.is_map(wanted):
        path = f"{path}{{}}"
        return [(given.key_type, wanted.key_type, path), (given.item_type, wanted.item_type, path)]
    if types.is_list(wanted) and any(is_one(given) for is_one in _LISTS):
        return [(given.value_type, wanted.value_type, f"{path}[]")]
    return None


def _holds(wanted: pa.DataType, given: pa.DataType) -> bool:
    """Tell whether ``wanted`` means the same as ``given``: a value changes nothing but its form, or is out of range."""
    if types.is_integer(wanted):
        return bool(types.is_integer(given))
    if types.is_decimal(wanted):
        return bool(types.is_integer(given) or (types.is_decimal(given) and given.scale <= wanted.scale))
    if types.is_floating(wanted):
        return bool(types.is_integer(given) or (types.is_floating(given) and given.bit_width <= wanted.bit_width))
    if types.is_timestamp(wanted):
        return bool(types.is_timestamp(given) and (given.tz is None) == (wanted.tz is None))
    alike = {pa.string(): _TEXTS, pa.binary(): _BYTES}.get(wanted, (types.is_duration,) * types.is_duration(wanted))
    return any(is_one(given) for is_one in alike)


#: No list views: of a slice, Arrow 26 casts them to other lists.
_LISTS = (types.is_list, types.is_large_list, types.is_fixed_size_list)
_TEXTS = (types.is_string, types.is_large_string, types.is_string_view)
_BYTES = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)


def own_bytes(values: pa.Array, begin: np.ndarray) -> pa.Array:
    """Return the values, without nulls, as binary from byte ``begin`` of each on (n int64)."""
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
