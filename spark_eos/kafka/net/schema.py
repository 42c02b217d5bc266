"""The fields of requests and responses: how each kind is written and read, in flexible versions (KIP-482) and, for
requests that have no flexible version, in older ones.

A `Request` describes both sides. The request is a mapping, the response a `Record`, whose annotations name the kind of
each field::

    class FindCoordinatorResponse(Record):
        throttle_time_ms: Int32
        coordinators: tuple[Coordinator, ...]

    FIND = Request("FindCoordinator", 10, 4, 4, asks=record(key_type=INT8, keys=array(STRING)),
                   answers=FindCoordinatorResponse)
    FIND.asks.write({"key_type": 1, "keys": ["my-transactional-id"]})

kio has all requests, generated from Kafka's definitions; tests compare these with its. To import it would more than
double a worker's processor time to start (0.25 s instead of 0.1).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    NoReturn,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

NO_TAGS = b"\x00"
_VARINT_BYTES = 5
T = TypeVar("T")
R = TypeVar("R", bound="Record")
R_co = TypeVar("R_co", bound="Record", covariant=True)


class FieldReader:
    """Reads the fields of a response, one after the other: the bytes of ``data`` from ``at``, which advances, to
    ``end``. Raises IndexError or struct.error beyond the end."""

    def __init__(self, data: bytes | bytearray, end: int | None = None, at: int = 0) -> None:
        self.data, self.at = data, at
        self._end = len(data) if end is None else end

    @property
    def left(self) -> int:
        """Number of bytes not read yet."""
        return self._end - self.at

    def unpack(self, form: struct.Struct) -> Sequence[Any]:
        """Read the next numbers, of a fixed form."""
        at = self.at
        self.at = at + form.size
        if self.at > self._end:
            raise IndexError(self.at)
        return form.unpack_from(self.data, at)

    def varint(self) -> int:
        """Read the next unsigned variable-length number, of 32 bits at most."""
        number = 0
        for shift in range(0, 7 * _VARINT_BYTES, 7):
            if self.at >= self._end:
                raise IndexError(self.at)
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise IndexError("a number without an end")

    def count(self) -> int:
        """Read the length of an array or of bytes; 0 also for null."""
        return self.possible(max(0, self.varint() - 1))

    def possible(self, count: int) -> int:
        """Return the count. Raises IndexError if fewer bytes are left, as each counted item has one at least."""
        if count > self.left:
            raise IndexError(count)
        return count

    def text(self) -> str:
        """Read a text; empty for null."""
        return self.skip(self.count()).decode()

    def pass_over(self, size: int) -> int:
        """Skip the next ``size`` bytes, and return their position. Raises IndexError if there are fewer."""
        at = self.at
        self.at += size
        if self.at > self._end:
            raise IndexError(self.at)
        return at

    def skip(self, size: int) -> bytes:
        """Read the next ``size`` bytes. Raises IndexError if there are fewer."""
        at = self.pass_over(size)
        return bytes(self.data[at : self.at])

    def skip_tags(self) -> None:
        self.tags()

    def tags(self) -> dict[int, bytes]:
        """Read tagged fields, by their number."""
        tags: dict[int, bytes] = {}
        for _ in range(self.possible(self.varint())):
            number = self.varint()
            if number in tags:
                raise IndexError("a tagged field twice")
            tags[number] = self.skip(self.varint())
        return tags


def varint(number: int) -> bytes:
    """Encode an unsigned variable-length number, as in front of arrays and texts."""
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def text(text: str) -> bytes:
    """Encode a compact string, of flexible versions: its length plus one, then UTF-8."""
    data = text.encode()
    return varint(len(data) + 1) + data


@dataclass(frozen=True)
class FieldType(Generic[T]):
    """One kind of field. ``read`` raises IndexError, struct.error or UnicodeDecodeError on malformed bytes. ``form``: a
    number's format in `struct`."""

    write: Callable[[Any], bytes]
    read: Callable[[FieldReader], T]
    form: str = ""


def _number(form: str) -> FieldType[int]:
    packed = struct.Struct(">" + form)
    return FieldType(packed.pack, lambda fields: fields.unpack(packed)[0], form)


def _write_bytes(data: bytes | None) -> bytes:
    return NO_TAGS if data is None else varint(len(data) + 1) + data


def _read_nullable_text(fields: FieldReader) -> str | None:
    size = fields.varint()
    return None if size == 0 else fields.skip(size - 1).decode()


BOOL, INT8, INT16, INT32, INT64 = map(_number, "?bhiq")
#: Null is read as an empty text.
STRING = FieldType(text, FieldReader.text)
NULLABLE_STRING = FieldType(lambda value: b"\x00" if value is None else text(value), _read_nullable_text)
#: Null is read as no bytes.
BYTES = FieldType(_write_bytes, lambda fields: fields.skip(fields.count()))
#: 16 bytes.
UUID = FieldType(bytes, lambda fields: fields.skip(16))


def array(of: FieldType[T]) -> FieldType[tuple[T, ...]]:
    """Return the type of an array; None is written as null, and null is read as an empty array."""

    def write(values: Sequence[Any] | None) -> bytes:
        return b"\x00" if values is None else varint(len(values) + 1) + b"".join(map(of.write, values))

    def read(fields: FieldReader) -> tuple[T, ...]:
        count = fields.count()
        if of.form:
            return tuple(fields.unpack(struct.Struct(f">{count}{of.form}")))
        return tuple([of.read(fields) for _ in range(count)])

    return FieldType(write, read)


def some(of: FieldType[T]) -> FieldType[tuple[T, ...]]:
    """Return the type of an array in a response with at least one item, for the item that was requested."""
    listed = array(of)

    def read(fields: FieldReader) -> tuple[T, ...]:
        values = listed.read(fields)
        if not values:
            raise IndexError("nothing about what was asked for")
        return values

    return FieldType(listed.write, read)


def record(**kinds: FieldType[Any]) -> FieldType[dict[str, Any]]:
    """Return the type of a request's fields, as a mapping, in this order. Responses are read as `Record`."""

    def write(values: Mapping[str, Any]) -> bytes:
        if values.keys() != kinds.keys():
            raise ValueError(f"a request with fields {sorted(values)} should have {sorted(kinds)}")
        return b"".join(kind.write(values[name]) for name, kind in kinds.items()) + NO_TAGS

    def read(fields: FieldReader) -> dict[str, Any]:
        values = {name: kind.read(fields) for name, kind in kinds.items()}
        fields.skip_tags()
        return values

    return FieldType(write, read)


@dataclass(frozen=True)
class Api:
    """A request, as the versions ``first`` to ``last`` that this client knows. ``api``: Kafka's number for the
    request."""

    name: str
    api: int
    first: int
    last: int

    def version(self, first: int, last: int) -> int | None:
        """Return the newest version that a broker has, too, which speaks versions ``first`` to ``last``."""
        newest = min(last, self.last)
        return newest if newest >= max(first, self.first) else None


def _write_fixed_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read_fixed_text(fields: FieldReader) -> str:
    (size,) = fields.unpack(_SHORT)
    return fields.skip(max(0, size)).decode()


_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
#: As `STRING`, in versions that are not flexible.
FIXED_STRING = FieldType(_write_fixed_text, _read_fixed_text)


def fixed_array(of: FieldType[T]) -> FieldType[tuple[T, ...]]:
    """Return the type of an array in versions that are not flexible."""

    def write(values: Sequence[Any]) -> bytes:
        return struct.pack(">i", len(values)) + b"".join(map(of.write, values))

    def read(fields: FieldReader) -> tuple[T, ...]:
        return tuple([of.read(fields) for _ in range(fields.possible(fields.unpack(_INT)[0]))])

    return FieldType(write, read)


def fixed_record(**kinds: FieldType[Any]) -> FieldType[dict[str, Any]]:
    """Return the type of a record in versions that are not flexible: without tagged fields."""

    def write(values: Mapping[str, Any]) -> bytes:
        return b"".join(kind.write(values[name]) for name, kind in kinds.items())

    return FieldType(write, lambda fields: {name: kind.read(fields) for name, kind in kinds.items()})


# Answers

Bool = Annotated[bool, BOOL]
Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
String = Annotated[str, STRING]
NullableString = Annotated[str | None, NULLABLE_STRING]
Bytes = Annotated[bytes, BYTES]
Uuid = Annotated[bytes, UUID]
FixedString = Annotated[str, FIXED_STRING]
#: An array that is never empty, as `some`.
Some = Annotated[tuple[T, ...], some]


@dataclass(frozen=True)
class Tagged:
    """In the annotation of a field: a tagged field with this number and kind, None if the response lacks it. Tagged
    fields without an annotation are skipped."""

    number: int
    kind: FieldType[Any]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record:
    """A response, or a part of one. The annotations of a subclass are its fields, in their order on the wire; arrays
    are tuples.

    Subclasses behave as frozen dataclasses with keyword arguments, also for type checkers. `dataclass` itself would
    take a millisecond for each of them, and every worker defines them all when it starts.
    """

    _flexible: ClassVar[bool]
    _reader: ClassVar[Callable[[FieldReader], Any] | None]

    def __init_subclass__(cls, *, flexible: bool = True) -> None:
        cls._flexible, cls._reader = flexible, None

    def __init__(self, **values: object) -> None:
        names = _hints_of(type(self)).keys()
        if values.keys() != names:
            raise TypeError(f"{type(self).__name__} has the fields {sorted(names)}, not {sorted(values)}")
        self.__dict__.update({name: values[name] for name in names})

    @classmethod
    def read(cls, fields: FieldReader) -> Self:
        """Read the next record. Raises IndexError, struct.error or UnicodeDecodeError if the bytes are none."""
        if cls._reader is None:
            cls._reader = _reader_of(cls, cls._flexible)
        record: Self = cls._reader(fields)
        return record

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


def _hints_of(kind: type[Record]) -> dict[str, object]:
    """Return the annotations of the fields, by name."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hint for name, hint in hints.items() if name not in Record.__annotations__}


def _reader_of(kind: type[R], flexible: bool) -> Callable[[FieldReader], R]:
    """Return the function that reads records of this class."""
    hints = _hints_of(kind)
    tagged = {name: found for name, hint in hints.items() if (found := _tagged(hint)) is not None}
    plain = [name for name in hints if name not in tagged]
    steps = list(_steps([_kind_of(hints[name], flexible) for name in plain]))
    names = [*plain, *tagged]

    def read(fields: FieldReader) -> R:
        values: list[Any] = []
        for step in steps:
            values += step(fields)
        if flexible:
            tags = fields.tags()
            for tag in tagged.values():
                values.append(tag.kind.read(FieldReader(tags[tag.number])) if tag.number in tags else None)
        record = object.__new__(kind)
        record.__dict__.update(zip(names, values, strict=True))
        return record

    return read


def _steps(kinds: Sequence[FieldType[Any]]) -> Iterator[Callable[[FieldReader], Sequence[Any]]]:
    """Yield readers of one field, or of some numbers that follow one another, which are read at once."""
    form = ""
    for kind in kinds:
        form += kind.form
        if not kind.form:
            yield from _numbers(form)
            yield _alone(kind)
            form = ""
    yield from _numbers(form)


def _numbers(form: str) -> Iterator[Callable[[FieldReader], Sequence[Any]]]:
    if form:
        packed = struct.Struct(">" + form)
        yield lambda fields: fields.unpack(packed)


def _alone(kind: FieldType[Any]) -> Callable[[FieldReader], Sequence[Any]]:
    read = kind.read
    return lambda fields: (read(fields),)


def _tagged(hint: object) -> Tagged | None:
    return next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Tagged)), None)


def _kind_of(hint: object, flexible: bool) -> FieldType[Any]:
    """Return the kind of field that an annotation names."""
    if get_origin(hint) is Annotated:
        listed, extra = get_args(hint)
        return extra if isinstance(extra, FieldType) else some(_kind_of(get_args(listed)[0], flexible))
    if get_origin(hint) is tuple:
        return (array if flexible else fixed_array)(_kind_of(get_args(hint)[0], flexible))
    assert isinstance(hint, type) and issubclass(hint, Record)
    return FieldType(_only_read, hint.read)


def array_of(kind: type[R]) -> FieldType[tuple[R, ...]]:
    """Return the type of an array of records in a tagged field."""
    return array(FieldType(_only_read, kind.read))


def _only_read(values: object) -> NoReturn:
    raise TypeError(f"{values!r} is only read")


@dataclass(frozen=True)
class Request(Api, Generic[R_co]):
    """A request whose fields are the same in all of these versions, which are flexible, or none of them is."""

    asks: FieldType[Any]
    answers: type[R_co]
    flexible: bool = True
