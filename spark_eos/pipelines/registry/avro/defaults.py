"""Defaults of fields as datums, which are read like a writer's. No I/O."""

from __future__ import annotations

import json
import struct

from spark_eos.errors import EosError, stop
from spark_eos.pipelines.registry.avro.schema import (
    Array,
    Enum,
    Fixed,
    Json,
    Map,
    Primitive,
    RecordType,
    Schema,
    Union,
    name_of,
)

_INT_BITS, _LONG_BITS = 32, 64
#: The most bytes of a default: lists in defaults, whose items have defaults with lists, double with each level.
MOST_BYTES = 1 << 16


def default_bytes(schema: Schema, default: str, path: str) -> bytes:
    """Return the datum of a default in JSON. Raises SchemaError where it is no value of the schema."""
    return _bytes(schema, json.loads(default), path)


def long_bytes(number: int) -> bytes:
    """Return a number as a zigzag varint."""
    zigzag, data = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        data.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    data.append(zigzag)
    return bytes(data)


def _bytes(schema: Schema, value: Json, path: str) -> bytes:
    data = _datum(schema, value, path)
    if len(data) > MOST_BYTES:
        raise stop("EOS_AVRO_SCHEMA.long_default", path=path, most=MOST_BYTES)
    return data


def _datum(schema: Schema, value: Json, path: str) -> bytes:
    match schema:
        case Union():
            return _union(schema, value, path)
        case Primitive():
            return _primitive(schema.type, value, path)
        case Fixed(size=size) if (data := _characters(value)) is not None and len(data) == size:
            return data
        case Enum(symbols=symbols) if value in symbols:
            return long_bytes(symbols.index(value))
        case Array(items=items) if isinstance(value, list):
            return _block([_bytes(items, one, f"{path}[]") for one in value])
        case Map(values=values) if isinstance(value, dict):
            return _block([_text(key) + _bytes(values, one, f"{path}{{}}") for key, one in value.items()])
        case RecordType() if isinstance(value, dict):
            return _record(schema, value, path)
    raise _invalid(schema, value, path)


def _union(schema: Union, value: Json, path: str) -> bytes:
    """Return a value of the first branch that it fits. Older versions of the specification only allow the first branch
    of all."""
    for number, branch in enumerate(schema.branches):
        try:
            return long_bytes(number) + _bytes(branch, value, path)
        except EosError as error:
            if error.entry != "EOS_AVRO_SCHEMA.default":
                raise
    raise _invalid(schema, value, path)


def _record(schema: RecordType, value: dict[str, Json], path: str) -> bytes:
    data = b""
    for field in schema.fields:
        where = f"{path}.{field.name}"
        if field.name in value:
            data += _bytes(field.schema, value[field.name], where)
        elif field.default is not None:
            data += default_bytes(field.schema, field.default, where)
        else:
            raise _invalid(field.schema, "nothing", where)
    return data


def _primitive(type_: str, value: Json, path: str) -> bytes:
    match type_, value:
        case "null", None:
            return b""
        case "boolean", bool():
            return bytes([value])
        case (("int" | "long"), int()) if type(value) is int and _fits(
            value, _INT_BITS if type_ == "int" else _LONG_BITS
        ):
            return long_bytes(value)
        case (("float" | "double"), (int() | float())) if type(value) is not bool:
            return _float(type_, value, path)
        case "string", str():
            return _text(value, path)
        case "bytes", str() if (data := _characters(value)) is not None:
            return long_bytes(len(data)) + data
    raise _invalid(Primitive(type_), value, path)


def _float(type_: str, value: float, path: str) -> bytes:
    try:
        return struct.pack("<f" if type_ == "float" else "<d", value)
    except OverflowError:
        raise _invalid(Primitive(type_), value, path) from None


def _text(value: str, path: str = "") -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise _invalid(Primitive("string"), value, path) from None
    return long_bytes(len(data)) + data


def _characters(value: Json) -> bytes | None:
    """Return the bytes of a JSON string, whose characters U+0000 to U+00FF represent bytes; None for other values."""
    try:
        return value.encode("latin-1") if isinstance(value, str) else None
    except UnicodeEncodeError:
        return None


def _fits(number: int, bits: int) -> bool:
    return -(1 << bits - 1) <= number < 1 << bits - 1


def _block(items: list[bytes]) -> bytes:
    return b"".join([*([long_bytes(len(items)), *items] if items else []), b"\0"])


def _invalid(schema: Schema, value: Json, path: str) -> EosError:
    return stop("EOS_AVRO_SCHEMA.default", path=path, default=value, type=name_of(schema))
