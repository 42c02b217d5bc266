"""The fields of requests and answers: how each kind is written and read, in the flexible versions (KIP-482), and in
older ones, where a request has no others.

A `Request` says what its two sides are made of; both sides are written and read as plain mappings and records::

    FIND = Request("FindCoordinator", 10, 4, 4, asks=record(key_type=INT8, keys=array(STRING)), answers=record(...))
    FIND.asks.write({"key_type": 1, "keys": ["my-transactional-id"]})
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

NO_TAGS = b"\x00"
_VARINT_BYTES = 5


class Record(SimpleNamespace):
    """What was read by a `record`: its fields as attributes."""


class FieldReader:
    """The fields of an answer, one after the other. Raises IndexError or struct.error behind its end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        """How many bytes were not read yet."""
        return len(self._data) - self._at

    def of(self, form: struct.Struct) -> Sequence[Any]:
        """The next numbers, of a fixed form."""
        found = form.unpack_from(self._data, self._at)
        self._at += form.size
        return found

    def varint(self) -> int:
        """The next unsigned variable-length number, of 32 bits at most."""
        number = 0
        for shift in range(0, 7 * _VARINT_BYTES, 7):
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise IndexError("a number without an end")

    def count(self) -> int:
        """Of an array or of bytes; 0 also for null."""
        return self.possible(max(0, self.varint() - 1))

    def possible(self, count: int) -> int:
        """The count. Raises IndexError where there are fewer bytes than that, as everything that is counted has one."""
        if count > self.left:
            raise IndexError(count)
        return count

    def text(self) -> str:
        """Empty for null."""
        return self.skip(self.count()).decode()

    def skip(self, size: int) -> bytes:
        """The next ``size`` bytes. Raises IndexError if there are fewer."""
        self._at += size
        if self._at > len(self._data):
            raise IndexError(self._at)
        return self._data[self._at - size : self._at]

    def skip_tags(self) -> None:
        self.tags()

    def tags(self) -> dict[int, bytes]:
        """Tagged fields, by their number."""
        found: dict[int, bytes] = {}
        for _ in range(self.possible(self.varint())):
            number = self.varint()
            if number in found:
                raise IndexError("a tagged field twice")
            found[number] = self.skip(self.varint())
        return found


def varint(number: int) -> bytes:
    """Unsigned, as for sizes in requests."""
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def text(text: str) -> bytes:
    """A compact string, of flexible versions: its length plus one, then UTF-8."""
    data = text.encode()
    return varint(len(data) + 1) + data


@dataclass(frozen=True)
class FieldType:
    """One kind of field. ``read`` raises IndexError, struct.error or UnicodeDecodeError on what is not one."""

    write: Callable[[Any], bytes]
    read: Callable[[FieldReader], Any]


def _number(form: str) -> FieldType:
    packed = struct.Struct(">" + form)
    return FieldType(packed.pack, lambda fields: fields.of(packed)[0])


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


def array(of: FieldType) -> FieldType:
    """A list; None is written as null, and null is read as an empty list."""

    def write(values: Sequence[Any] | None) -> bytes:
        return b"\x00" if values is None else varint(len(values) + 1) + b"".join(map(of.write, values))

    return FieldType(write, lambda fields: [of.read(fields) for _ in range(fields.count())])


def some(of: FieldType) -> FieldType:
    """As `array`, where an answer has at least one: that about what was asked for."""
    listed = array(of)

    def read(fields: FieldReader) -> list[Any]:
        found: list[Any] = listed.read(fields)
        if not found:
            raise IndexError("nothing about what was asked for")
        return found

    return FieldType(listed.write, read)


def record(_tagged: Mapping[int, tuple[str, FieldType]] | None = None, /, **kinds: FieldType) -> FieldType:
    """A mapping of these fields, in this order; read as a `Record`.

    ``_tagged``: tagged fields that are read, by number, with name and kind; None where the answer has them not. All
    others are passed over, and none are written.
    """
    tagged = _tagged or {}

    def write(values: Mapping[str, Any]) -> bytes:
        if values.keys() != kinds.keys():
            raise ValueError(f"a request with fields {sorted(values)} should have {sorted(kinds)}")
        return b"".join(kind.write(values[name]) for name, kind in kinds.items()) + NO_TAGS

    def read(fields: FieldReader) -> Record:
        found = {name: kind.read(fields) for name, kind in kinds.items()}
        tags = fields.tags()
        for number, (name, kind) in tagged.items():
            found[name] = kind.read(FieldReader(tags[number])) if number in tags else None
        return Record(**found)

    return FieldType(write, read)


@dataclass(frozen=True)
class Api:
    """Versions ``first`` to ``last`` of a request, of which any will do; ``api`` is Kafka's number for it."""

    name: str
    api: int
    first: int
    last: int

    def version(self, first: int, last: int) -> int | None:
        """The newest version that a broker has, too, which speaks versions ``first`` to ``last``."""
        newest = min(last, self.last)
        return newest if newest >= max(first, self.first) else None


def _write_fixed_text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read_fixed_text(fields: FieldReader) -> str:
    (size,) = fields.of(_SHORT)
    return fields.skip(max(0, size)).decode()


_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
#: As `STRING`, in versions that are not flexible.
FIXED_STRING = FieldType(_write_fixed_text, _read_fixed_text)


def fixed_array(of: FieldType) -> FieldType:
    """As `array`, in versions that are not flexible."""

    def write(values: Sequence[Any]) -> bytes:
        return struct.pack(">i", len(values)) + b"".join(map(of.write, values))

    def read(fields: FieldReader) -> list[Any]:
        return [of.read(fields) for _ in range(fields.possible(fields.of(_INT)[0]))]

    return FieldType(write, read)


def fixed_record(**kinds: FieldType) -> FieldType:
    """As `record`, in versions that are not flexible: without tagged fields."""

    def write(values: Mapping[str, Any]) -> bytes:
        return b"".join(kind.write(values[name]) for name, kind in kinds.items())

    return FieldType(write, lambda fields: Record(**{name: kind.read(fields) for name, kind in kinds.items()}))


@dataclass(frozen=True)
class Request(Api):
    """A request whose fields are the same in all of these versions, which are flexible, or none of them is."""

    asks: FieldType
    answers: FieldType
    flexible: bool = True
