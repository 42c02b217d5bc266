"""JSON values with a JSON Schema, which gives each column its type.

A value is malformed if it is not JSON, has another type anywhere, or lacks a required property. Other rules of a
schema, such as ranges and patterns, are not checked. Properties that the reader's schema does not have are left out;
properties that a value lacks are null.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from spark_eos.errors import stop
from spark_eos.pipelines.arrow_fields import lost_field
from spark_eos.pipelines.registry.formats import (
    MOST_LEVELS,
    Decode,
    DecodedValues,
    EncodedValues,
    Size,
    cast,
    own_bytes,
)
from spark_eos.pipelines.registry.schemas import Schema, check_kind, not_installed, too_large

try:
    from referencing import Registry, Specification
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT7, specification_with
except ImportError as missing:
    raise not_installed(missing) from None

_NOT_JSON = "it is not JSON"
#: The most levels of arrays and objects within one another. Python's own limit depends on the depth of the call.
_MOST_LEVELS = 128
_TOO_DEEP = f"it has more than {_MOST_LEVELS} levels within one another"
#: Digits beyond which a number has more than 64 bits, as a float too, and bytes below which Python reads any number.
_MOST_DIGITS, _LONG_TEXT = 400, 640
_NO_BRACKETS = bytes({*range(256)} - {*b"[]{}"})
#: By byte, how many levels more.
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


@dataclass(frozen=True)
class Shape:
    """The shape of values. ``type``: Arrow's; ``nullable``: whether they may be null. ``fields``: the properties of an
    object: name, shape, whether it is required. ``items``: the shape of an array's items, or of a map's values.
    ``size``: the type's."""

    type: pa.DataType
    nullable: bool = False
    fields: tuple[tuple[str, Shape, bool], ...] = ()
    items: Shape | None = None
    size: Size = field(default_factory=Size)


#: Words for other schemas that a value has to fit, and words that give it a type by themselves.
_COMBINING = ("$ref", "oneOf", "anyOf", "allOf")
_OF_TYPES = ("properties", "items")
_NESTED = "levels of types within one another"
_SIMPLE = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


class JsonReader:
    """Reads JSON texts as values of one shape."""

    def __init__(self, schema: Schema, message: str | None = None) -> None:
        self._shape = shape_of(schema)
        self.type: pa.DataType = self._shape.type

    def of_writer(self, schema: Schema, message: tuple[int, ...]) -> Decode:
        """Return the decoder of JSON texts, for a writer with any JSON Schema: each value is checked by itself."""
        check_kind(schema, "JSON")
        return self._decode

    def _decode(self, values: pa.Array, begin: np.ndarray) -> DecodedValues:
        rows: list[object] = []
        bad: dict[int, str] = {}
        for number, text in enumerate(own_bytes(values, begin).to_pylist()):
            try:
                _check_levels(text)
                whole = _whole if len(text) > _LONG_TEXT else None
                value = json.loads(text.decode(), parse_constant=_no_number, parse_float=_Real, parse_int=whole)
                rows.append(_shaped(value, self._shape, ""))
            except _OtherShape as error:
                rows.append(None)
                bad[number] = str(error)
            except ValueError:  # also of texts that are not UTF-8
                rows.append(None)
                bad[number] = _NOT_JSON
        return DecodedValues(pa.array(rows, self.type), bad)


class JsonWriter:
    """Writes rows as JSON texts of one shape."""

    record = None
    message: tuple[int, ...] = ()

    def __init__(self, schema: Schema, message: str | None = None) -> None:
        self._shape = shape_of(schema)

    def encode(self, rows: pa.Array, prefix: bytes) -> EncodedValues:
        """Return the JSON text of each row, after the prefix. A null is left out where the schema does not allow it and
        the property is not required. Raises RegistryError (EOS_REGISTRY_SCHEMA) for rows of another type, or with
        fields that are not in the schema."""
        lost = lost_field(rows.type, self._shape.type)
        if lost is not None:
            fields = ", ".join(name for name, _, _ in self._shape.fields)
            raise stop("EOS_REGISTRY_SCHEMA.column", column=lost, record="the JSON Schema", fields=fields)
        texts: list[bytes | None] = []
        fitting, out_of_range = cast(rows, self._shape.type, "value")
        bad = dict.fromkeys(out_of_range, "a number is out of its range")
        for number, row in enumerate(fitting.to_pylist()):
            try:
                value = None if row is None else _shaped(_without_nulls(row, self._shape), self._shape, "")
                text = None if row is None else json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
                texts.append(None if text is None else prefix + text)
            except (_OtherShape, ValueError) as error:
                texts.append(None)
                bad[number] = str(error)
        return EncodedValues(pa.array(texts, pa.binary()), bad)


def shape_of(schema: Schema) -> Shape:
    """Return the shape that a JSON Schema describes. Raises RegistryError (EOS_REGISTRY_SCHEMA) where it gives a value
    more than one type, or none."""
    try:
        documents = {name: json.loads(one.text) for name, one in schema.all_references().items()}
        root = json.loads(schema.text)
    except ValueError:
        raise stop("EOS_REGISTRY_SCHEMA.json", path="the schema", why="is not JSON") from None
    except RecursionError:
        raise too_large("JSON", MOST_LEVELS, _NESTED) from None
    try:
        return _Shapes(documents).shape(root, "", _scope_of(root))
    except (AttributeError, TypeError, ValueError):  # such as a list where an object belongs
        raise stop("EOS_REGISTRY_SCHEMA.json", path="the schema", why="is no JSON Schema") from None
    except RecursionError:
        raise too_large("JSON", MOST_LEVELS, _NESTED) from None


class _Real(str):
    """The text of a number with a point or an exponent, of which a float would keep about 16 digits, or with more
    digits than Python reads."""

    __slots__ = ()


class _OtherShape(Exception):
    """A value has another shape; the text says where."""


@dataclass(frozen=True)
class _Scope:
    """A location in a JSON document. ``resolver``: resolves references from there; ``dialect``: the version of JSON
    Schema, which says how schemas name themselves."""

    resolver: Any
    dialect: Specification[Any]

    def at(self, schema: dict[str, Any]) -> _Scope:
        """Return the location of a schema within this one."""
        return _Scope(self.resolver.in_subresource(self.dialect.create_resource(schema)), self.dialect)


def _scope_of(document: Any) -> _Scope:  # noqa: ANN401  # JSON
    """Return the location at the begin of a document. References to other documents are unknown there."""
    named = document.get("$schema", "") if isinstance(document, dict) else ""
    dialect = specification_with(named, default=DRAFT7)
    return _Scope(Registry().with_resource("", dialect.create_resource(document)).resolver(), dialect)


class _Shapes:
    """Derives shapes. ``documents``: the JSON of the schema's references, by name."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._begins = {name: _scope_of(document) for name, document in documents.items()}
        #: By the id of the schema that is referred to; None while it is being derived.
        self._referred: dict[int, Shape | None] = {}

    def shape(self, schema: Any, path: str, scope: _Scope) -> Shape:  # noqa: ANN401  # JSON
        """Derive the shape of a part of the schema. ``path``: where it is, for messages; ``scope``: the location that
        encloses it."""
        if not isinstance(schema, dict):
            raise _refused(path, "is true or false, which says nothing of its type")
        scope = scope.at(schema)
        combining = [word for word in _COMBINING if word in schema]
        has_own = any(word in schema for word in _OF_TYPES) or isinstance(schema.get("additionalProperties"), dict)
        if combining and (has_own or len(combining) > 1):
            raise _refused(path, f"has '{combining[0]}' and its own properties or items, or other schemas, beside it")
        if "$ref" in schema:
            return self._at(str(schema["$ref"]), path, scope)
        for word in ("oneOf", "anyOf"):
            if word in schema:
                return self._one_of(schema[word], path, scope)
        if "allOf" in schema:
            raise _refused(path, "is 'allOf' of several schemas")
        names = _types_of(schema)
        nullable, names = "null" in names, [name for name in names if name != "null"]
        if len(names) != 1:
            raise _refused(path, "has no single type")
        return self._typed(schema, names[0], nullable, path, scope)

    def _typed(self, schema: dict[str, Any], name: str, nullable: bool, path: str, scope: _Scope) -> Shape:
        if name in _SIMPLE:
            return Shape(_SIMPLE[name], nullable)
        if name == "array":
            items = self.shape(schema.get("items"), f"{path}[]", scope)
            return Shape(pa.list_(items.type), nullable, items=items, size=Size.around([items.size], "JSON"))
        if name != "object":
            raise _refused(path, f"is of the type '{name}'")
        properties = schema.get("properties", {})
        if not properties and isinstance(schema.get("additionalProperties"), dict):
            values = self.shape(schema["additionalProperties"], f"{path}{{}}", scope)
            size = Size.around([Size.around([Size(), values.size], "JSON")], "JSON")
            return Shape(pa.map_(pa.string(), values.type), nullable, items=values, size=size)
        if not properties:
            raise _refused(path, "is an object without properties")
        required = set(schema.get("required", ()))
        inner = f"{path}." if path else ""
        fields = tuple((k, self.shape(v, inner + k, scope), k in required) for k, v in properties.items())
        size = Size.around((shape.size for _, shape, _ in fields), "JSON")
        return Shape(pa.struct([pa.field(k, shape.type) for k, shape, _ in fields]), nullable, fields, size=size)

    def _one_of(self, schemas: list[Any], path: str, scope: _Scope) -> Shape:
        """Return the shape of ``oneOf`` or ``anyOf``: null or one other schema."""
        others = [one for one in schemas if not (isinstance(one, dict) and _types_of(one) == ["null"])]
        if len(others) != 1:
            raise _refused(path, "is one of several schemas")
        shape = self.shape(others[0], path, scope)
        return replace(shape, nullable=shape.nullable or len(others) < len(schemas))

    def _at(self, reference: str, path: str, scope: _Scope) -> Shape:
        """Return the shape of the schema that is referred to, which is derived once: schemas may use one another
        twice."""
        name, _, fragment = reference.partition("#")
        known = next((each for each in (name, unquote(name)) if each in self._begins), None)
        if known is not None:
            scope, name = self._begins[known], ""
        try:
            target = scope.resolver.lookup(reference if name else f"#{fragment}")
        except Unresolvable:
            where = (
                f"'{name}', which is not among the schema's references"
                if name
                else f"'{reference}', which is not there"
            )
            raise _refused(path, f"refers to {where}") from None
        key = id(target.contents)
        if key not in self._referred:
            self._referred[key] = None
            self._referred[key] = self.shape(target.contents, path, _Scope(target.resolver, scope.dialect))
        shape = self._referred[key]
        if shape is None:
            raise _refused(path, f"contains itself ('{reference}')")
        return shape


def _refused(path: str, why: str) -> Exception:
    return stop("EOS_REGISTRY_SCHEMA.json", path=path or "the schema", why=why)


def _types_of(schema: dict[str, Any]) -> list[str]:
    """Return the names of a schema's types: its own, or else the types of its values."""
    types = schema.get("type")
    if isinstance(types, str):
        return [types]
    if types or "properties" in schema:
        return list(types or ["object"])
    values = [schema["const"]] if "const" in schema else schema.get("enum", ())
    names = list(dict.fromkeys(map(_type_of, values)))
    # Every integer is a number.
    return [name for name in names if name != "integer" or "number" not in names]


def _type_of(value: Any) -> str:  # noqa: ANN401  # JSON
    """Return the type of a value, by JSON Schema, to which 1.0 is an integer."""
    if isinstance(value, float) and value.is_integer():
        return "integer"
    types = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return types.get(type(value), "null")


def _check_levels(text: bytes) -> None:
    """Raise _OtherShape for a text with more than `_MOST_LEVELS` levels."""
    if text.count(b"[") + text.count(b"{") <= _MOST_LEVELS:
        return
    # Without escapes, quotes are the ends of strings.
    outside = b"".join(text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])
    brackets = np.frombuffer(outside.translate(None, _NO_BRACKETS), np.uint8)
    if np.cumsum(_STEPS[brackets], dtype=np.int64).max(initial=0) > _MOST_LEVELS:
        raise _OtherShape(_TOO_DEEP)


def _shaped(value: Any, shape: Shape, path: str) -> object:  # noqa: ANN401  # JSON
    """Return the value as Arrow takes it. Raises _OtherShape."""
    if value is None:
        if not shape.nullable:
            raise _OtherShape(f"{path or 'the value'} is null")
        return None
    if shape.fields:
        if not isinstance(value, dict):
            raise _OtherShape(f"{path or 'the value'} is not an object")
        inner = f"{path}." if path else ""
        missing = [name for name, _, required in shape.fields if required and name not in value]
        if missing:
            raise _OtherShape(f"{inner}{missing[0]} is missing")
        return {name: _shaped(value[name], each, inner + name) for name, each, _ in shape.fields if name in value}
    if shape.items is not None:
        return _shaped_items(value, shape, path)
    return _shaped_simple(value, shape.type, path or "the value")


def _shaped_simple(value: Any, type_: pa.DataType, path: str) -> object:  # noqa: ANN401  # JSON
    if isinstance(value, _Real):
        value = _integer(value, path) if type_ == pa.int64() else float(value)
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, str) and type_ == pa.string():
        _check_text(value, path)
        return value
    if numeric and type_ == pa.float64():
        if not abs(value) <= sys.float_info.max:
            raise _OtherShape(f"{path} is larger than any number of 64 bits")
        return float(value)
    if numeric and type_ == pa.int64() and isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise _OtherShape(f"{path} has more than 64 bits")
        return value
    if not (isinstance(value, bool) and type_ == pa.bool_()):
        raise _OtherShape(f"{path} is not of the type {type_}")
    return value


def _integer(text: _Real, path: str) -> int:
    """Return the integer that a text with a point or an exponent is, such as ``1.0``, as JSON Schema has it. Raises
    _OtherShape for any other number."""
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent of more digits than Decimal has
        raise _OtherShape(f"{path} has an exponent that is too long") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise _OtherShape(f"{path} has more than 64 bits")
    if number != int(number):
        raise _OtherShape(f"{path} is not of the type int64")
    return int(number)


def _check_text(text: str, path: str) -> None:
    r"""Raise _OtherShape for a lone surrogate, such as ``"\ud800"``, which JSON allows and UTF-8 does not."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _OtherShape(f"{path} is not Unicode text") from None


def _shaped_items(value: Any, shape: Shape, path: str) -> object:  # noqa: ANN401  # JSON
    assert shape.items is not None
    if pa.types.is_map(shape.type):
        if not isinstance(value, dict):
            raise _OtherShape(f"{path or 'the value'} is not an object")
        for name in value:
            _check_text(name, f"a key of {path or 'the value'}")
        return {name: _shaped(each, shape.items, f"{path}{{}}") for name, each in value.items()}
    if not isinstance(value, list):
        raise _OtherShape(f"{path or 'the value'} is not an array")
    return [_shaped(each, shape.items, f"{path}[]") for each in value]


def _without_nulls(value: Any, shape: Shape) -> object:  # noqa: ANN401  # a row
    """Return the row as JSON values, without properties whose null the shape does not allow. Maps, pairs in Arrow,
    become objects. Raises _OtherShape for a map with a key twice."""
    if value is None:
        return None
    if shape.fields:
        pairs = ((name, value[name], each) for name, each, _ in shape.fields)
        return {name: _without_nulls(one, each) for name, one, each in pairs if one is not None or each.nullable}
    if shape.items is not None and pa.types.is_map(shape.type):
        entries = {name: _without_nulls(one, shape.items) for name, one in value}
        if len(entries) < len(value):
            raise _OtherShape("a map has a key twice")
        return entries
    if shape.items is not None:
        return [_without_nulls(one, shape.items) for one in value]
    return value


def _whole(digits: str) -> object:
    return _Real(digits) if len(digits) > _MOST_DIGITS else int(digits)


def _no_number(text: str) -> object:
    raise ValueError(text)
