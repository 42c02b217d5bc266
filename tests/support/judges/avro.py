"""Avro schemas, values and datums for tests, by fastavro and by code that shares nothing with the codec.

Schemas are trees of JSON. Values are *tagged*: a value of a union is a pair of the branch's number and the value there;
one of a logical type is the number, the bytes or the text that is written. `datum` writes them, and `in_fastavro` says
what fastavro reads, given what a column has.
"""

from __future__ import annotations

import io
import random
import struct
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any

import fastavro
from hypothesis import strategies as st

_DAY_MS = 86_400_000
#: Milliseconds that Python's datetime has.
_LEAST_MS, _MOST_MS = -62_135_596_800_000, 253_402_300_799_000
_MILLIS, _MICROS = st.integers(_LEAST_MS, _MOST_MS), st.integers(1000 * _LEAST_MS, 1000 * _MOST_MS)
#: Values of each primitive type.
_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=8),
    "string": st.text(max_size=8),
}
#: Logical types, with the type that is written, and its values.
_LOGICAL: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "date": ("int", st.integers(_LEAST_MS // _DAY_MS, _MOST_MS // _DAY_MS)),
    "time-millis": ("int", st.integers(0, _DAY_MS - 1)),
    "time-micros": ("long", st.integers(0, 1000 * _DAY_MS - 1)),
    "timestamp-millis": ("long", _MILLIS),
    "timestamp-micros": ("long", _MICROS),
    "timestamp-nanos": ("long", _PRIMITIVES["long"]),
    "local-timestamp-millis": ("long", _MILLIS),
    "local-timestamp-micros": ("long", _MICROS),
    "uuid": ("string", st.uuids().map(str)),
}


def kind(tree: Any) -> str:
    """The type of a schema: "union", or that of JSON."""
    return "union" if isinstance(tree, list) else tree if isinstance(tree, str) else tree["type"]


def logical(tree: Any) -> str | None:
    """The logical type of a schema."""
    return tree.get("logicalType") if isinstance(tree, dict) else None


def members(tree: list[Any]) -> list[Any]:
    """The branches of a union that are not null."""
    return [branch for branch in tree if branch != "null"]


def has_bytes(tree: Any) -> bool:
    """Whether every value takes a byte at the least."""
    if kind(tree) == "record":
        return any(has_bytes(field["type"]) for field in tree["fields"])
    return kind(tree) != "null"


def record(*fields: tuple[str, Any], **more: Any) -> Any:
    """A record of fields of these names and types; what follows them belongs to the field."""
    named = [{"name": name, "type": type_, **(rest[0] if rest else {})} for name, type_, *rest in fields]
    return {"type": "record", "name": "R", "fields": named, **more}


@st.composite
def schemas(draw: Callable[[Any], Any], depth: int = 3, with_logical: bool = True) -> Any:
    """A record of any types."""
    return _record(draw, depth, with_logical, count())


def _record(draw: Callable[[Any], Any], depth: int, with_logical: bool, names: Any) -> Any:
    types = [_type(draw, depth - 1, with_logical, names) for _ in range(draw(st.integers(0 if depth < 3 else 1, 4)))]
    fields = [{"name": f"f{n}", "type": type_} for n, type_ in enumerate(types)]
    return {"type": "record", "name": f"R{next(names)}", "namespace": "n.s", "fields": fields}


def _type(draw: Callable[[Any], Any], depth: int, with_logical: bool, names: Any) -> Any:  # noqa: C901, a case a type
    kinds = ["primitive", "primitive", "fixed", "enum", "optional"]
    kinds += ["logical", "decimal"] if with_logical else []
    kinds += ["array", "map", "union", "record"] if depth > 0 else []
    match draw(st.sampled_from(kinds)):
        case "primitive":
            return draw(st.sampled_from([*_PRIMITIVES]))
        case "fixed":
            return {"type": "fixed", "name": f"F{next(names)}", "size": draw(st.integers(1, 18))}
        case "enum":
            return {"type": "enum", "name": f"E{next(names)}", "symbols": ["A", "B", "C"][: draw(st.integers(1, 3))]}
        case "logical":
            return _logical(draw, names)
        case "decimal":
            precision = draw(st.integers(1, 38))
            more = {"logicalType": "decimal", "precision": precision, "scale": draw(st.integers(0, precision))}
            fixed = {"type": "fixed", "name": f"D{next(names)}", "size": draw(st.sampled_from((16, 17, 20))), **more}
            return draw(st.sampled_from(({"type": "bytes", **more}, fixed)))
        case "array":
            items = _type(draw, depth - 1, with_logical, names)
            return {"type": "array", "items": items if has_bytes(items) else "int"}
        case "map":
            return {"type": "map", "values": _type(draw, depth - 1, with_logical, names)}
        case "record":
            return _record(draw, depth, with_logical, names)
        case "optional":
            branches = ["null", _branch(draw, depth - 1, with_logical, names)]
            return branches if draw(st.booleans()) else branches[::-1]
    branches, kinds = [], set()
    for _ in range(draw(st.integers(1, 4))):
        branch = draw(st.sampled_from(("null", None))) or _branch(draw, depth - 1, with_logical, names)
        # Each type once, but for named ones.
        if kind(branch) in ("record", "fixed", "enum") or kind(branch) not in kinds:
            branches.append(branch)
            kinds.add(kind(branch))
    return branches


def _branch(draw: Callable[[Any], Any], depth: int, with_logical: bool, names: Any) -> Any:
    branch = _type(draw, depth, with_logical, names)
    return "string" if kind(branch) in ("union", "null") else branch


def _logical(draw: Callable[[Any], Any], names: Any) -> Any:
    name = draw(st.sampled_from((*_LOGICAL, "fixed uuid", "duration")))
    if name in _LOGICAL:
        return {"type": _LOGICAL[name][0], "logicalType": name}
    size = 12 if name == "duration" else 16
    return {"type": "fixed", "name": f"L{next(names)}", "size": size, "logicalType": name.removeprefix("fixed ")}


def values(tree: Any) -> st.SearchStrategy[Any]:
    """Tagged values of a schema."""
    match kind(tree):
        case "union":
            return st.one_of([st.tuples(st.just(n), values(branch)) for n, branch in enumerate(tree)])
        case "record":
            return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in tree["fields"]})
        case "array":
            return st.lists(values(tree["items"]), max_size=4)
        case "map":
            return st.dictionaries(st.text(max_size=3), values(tree["values"]), max_size=3)
        case "enum":
            return st.sampled_from(tree["symbols"])
        case _ if logical(tree) == "decimal":
            most = 10 ** tree["precision"] - 1
            return st.integers(-most, most).map(lambda number: _decimal_bytes(number, tree.get("size")))
        case "fixed":
            return st.binary(min_size=tree["size"], max_size=tree["size"])
        case primitive:
            return _LOGICAL[tree["logicalType"]][1] if logical(tree) else _PRIMITIVES[primitive]


def _decimal_bytes(number: int, size: int | None) -> bytes:
    """In so many bytes, or as few as it needs."""
    needed = ((number if number >= 0 else ~number).bit_length() + 8) // 8
    return number.to_bytes(size or needed, "big", signed=True)


def varint(number: int) -> bytes:
    """A long."""
    return datum("long", number)


def datum(tree: Any, value: Any, blocks: random.Random | None = None) -> bytes:
    """The bytes of a tagged value. ``blocks``: chooses how arrays and maps are cut into blocks, with and without their
    sizes; without it, they are one block without size."""
    match kind(tree):
        case "union":
            number, inner = value
            return varint(number) + datum(tree[number], inner, blocks)
        case "record":
            return b"".join(datum(field["type"], value[field["name"]], blocks) for field in tree["fields"])
        case "array":
            return _blocks([datum(tree["items"], item, blocks) for item in value], blocks)
        case "map":
            pairs = [datum("string", key) + datum(tree["values"], item, blocks) for key, item in value.items()]
            return _blocks(pairs, blocks)
    file = io.BytesIO()
    fastavro.schemaless_writer(file, tree, value)
    return file.getvalue()


def _blocks(items: list[bytes], chance: random.Random | None) -> bytes:
    data = b""
    while items:
        number = chance.randint(1, len(items)) if chance else len(items)
        block, items = b"".join(items[:number]), items[number:]
        has_size = chance is not None and chance.random() < 0.5
        data += varint(-number) + varint(len(block)) + block if has_size else varint(number) + block
    return data + b"\0"


def in_fastavro(tree: Any, value: Any) -> Any:
    """What fastavro has for what a column has."""
    match kind(tree):
        case "union" if value is None or len(members(tree)) < 2:
            return None if value is None else in_fastavro(members(tree)[0], value)
        case "union":
            place = next((n for n in range(len(members(tree))) if value[f"member{n}"] is not None), 0)
            return in_fastavro(members(tree)[place], value[f"member{place}"])
        case "record":
            return {field["name"]: in_fastavro(field["type"], value[field["name"]]) for field in tree["fields"]}
        case "array":
            return [in_fastavro(tree["items"], item) for item in value]
        case "map":
            return {key: in_fastavro(tree["values"], item) for key, item in value}
    if logical(tree) == "uuid":
        return uuid.UUID(value).bytes if kind(tree) == "fixed" else uuid.UUID(value)
    if logical(tree) == "duration":
        return struct.pack("<III", *value.values())
    return value
