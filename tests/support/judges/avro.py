"""Avro schemas, values and datums for tests, by code that shares nothing with the codec.

Schemas are trees of JSON. Values are *tagged*: a value of a union is a pair of the branch's number and the value there.
`datum` writes them by the specification, `in_arrow` says what a column has for them, and `in_fastavro` what fastavro
reads, given what a column has.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
import uuid
from collections.abc import Callable
from decimal import Context, Decimal
from itertools import count, pairwise
from typing import Any, TypeAlias

import pyarrow as pa
from hypothesis import strategies as st

Blocks: TypeAlias = Callable[[int], list[int]]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "uuid": "string",
}
#: Milliseconds that Python's datetime has.
_LEAST_MS, _MOST_MS = -62_135_596_800_000, 253_402_300_799_000


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
    return kind(tree) != "null" and tree != {"type": "fixed"}


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
            return draw(st.sampled_from(PRIMITIVES))
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
    name = draw(st.sampled_from((*LOGICAL, "fixed uuid", "duration")))
    if name in LOGICAL:
        return {"type": LOGICAL[name], "logicalType": name}
    size = 12 if name == "duration" else 16
    return {"type": "fixed", "name": f"L{next(names)}", "size": size, "logicalType": name.removeprefix("fixed ")}


def values(tree: Any) -> Any:  # noqa: C901, a case for each type
    """Tagged values of a schema, as a strategy. Logical types have the numbers and bytes that are written."""
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
    match logical(tree):
        case "decimal":
            return st.integers(1 - 10 ** tree["precision"], 10 ** tree["precision"] - 1)
        case "uuid":
            return st.uuids()
        case "date":
            return st.integers(_LEAST_MS // 86_400_000, _MOST_MS // 86_400_000)
        case "time-millis" | "time-micros" as name:
            return st.integers(0, 86_400 * (10**3 if name == "time-millis" else 10**6) - 1)
        case str(name) if name.endswith("timestamp-millis"):
            return st.integers(_LEAST_MS, _MOST_MS)
        case str(name) if name.endswith("timestamp-micros"):
            return st.integers(1000 * _LEAST_MS, 1000 * _MOST_MS)
    match kind(tree):
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "int":
            return st.integers(-(1 << 31), (1 << 31) - 1)
        case "long":
            return st.integers(-(1 << 63), (1 << 63) - 1)
        case "float":
            return st.floats(width=32)
        case "double":
            return st.floats()
        case "string":
            return st.text(max_size=8)
        case "fixed":
            return st.binary(min_size=tree["size"], max_size=tree["size"])
    return st.binary(max_size=8)


def varint(number: int) -> bytes:
    """A long."""
    zigzag, data = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        data.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*data, zigzag])


def datum(tree: Any, value: Any, blocks: Blocks | None = None) -> bytes:  # noqa: C901, a case for each type
    """The bytes of a tagged value. ``blocks``: in which blocks so many items are written, each as its number of items,
    a negative one for a block with its size; without it, in one block without size."""
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
        case "enum":
            return varint(tree["symbols"].index(value))
        case "null":
            return b""
        case "boolean":
            return bytes([value])
        case "int" | "long":
            return varint(value)
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
    data = _bytes_of(tree, value)
    return data if kind(tree) == "fixed" else varint(len(data)) + data


def _bytes_of(tree: Any, value: Any) -> bytes:
    if isinstance(value, int):  # a decimal
        size = tree["size"] if kind(tree) == "fixed" else ((value if value >= 0 else ~value).bit_length() + 8) // 8
        return value.to_bytes(size, "big", signed=True)
    if isinstance(value, uuid.UUID):
        return value.bytes if kind(tree) == "fixed" else str(value).encode()
    return value.encode() if isinstance(value, str) else value


def _blocks(items: list[bytes], blocks: Blocks | None) -> bytes:
    data, at = b"", 0
    for number in blocks(len(items)) if blocks else [len(items)] if items else []:
        block = b"".join(items[at : at + abs(number)])
        at += abs(number)
        data += varint(number) + (varint(len(block)) if number < 0 else b"") + block
    return data + b"\0"


def in_arrow(tree: Any, value: Any) -> Any:  # noqa: C901, a case for each type
    """A tagged value as `to_pylist` has it."""
    match kind(tree):
        case "union":
            number, inner = value
            return _member(tree, number, in_arrow(tree[number], inner))
        case "record":
            return {field["name"]: in_arrow(field["type"], value[field["name"]]) for field in tree["fields"]}
        case "array":
            return [in_arrow(tree["items"], item) for item in value]
        case "map":
            return [(key, in_arrow(tree["values"], item)) for key, item in value.items()]
    match logical(tree):
        case "decimal":
            return Decimal(value).scaleb(-tree.get("scale", 0), _EXACT)
        case "uuid":
            return str(value)
        case "duration":
            return dict(zip(("months", "days", "millis"), struct.unpack("<III", value), strict=True))
        case "date":
            return EPOCH.date() + dt.timedelta(value)
        case "time-millis" | "time-micros" as name:
            micros = value * (1000 if name == "time-millis" else 1)
            return (EPOCH + dt.timedelta(microseconds=micros)).time()
        case str(name) if name.endswith(("-millis", "-micros")):
            time = EPOCH + dt.timedelta(microseconds=value * (1000 if name.endswith("-millis") else 1))
            return time.replace(tzinfo=None) if name.startswith("local") else time
    return value


#: Keeps all digits of a decimal.
_EXACT = Context(prec=40)


def _member(tree: list[Any], number: int, value: Any) -> Any:
    others = members(tree)
    if len(others) < 2 or tree[number] == "null":
        return value
    place = number - sum(branch == "null" for branch in tree[:number])
    return {f"member{n}": value if n == place else None for n in range(len(others))}


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


def same(one: Any, other: Any) -> bool:
    """Equality of values, in which NaN is itself."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and one == other


def alike(one: pa.Array, other: pa.Array) -> bool:
    """Whether two columns are equal, bit by bit, so that NaN is itself."""
    if one.type != other.type or len(one) != len(other) or not one.is_valid().equals(other.is_valid()):
        return False
    if pa.types.is_floating(one.type):
        number = pa.int32() if one.type == pa.float32() else pa.int64()
        return one.view(number).equals(other.view(number))
    if pa.types.is_struct(one.type):
        return all(alike(a, b) for a, b in zip(one.flatten(), other.flatten(), strict=True))
    if pa.types.is_list(one.type) or pa.types.is_map(one.type):
        (count, *values), (other_count, *other_values) = _items(one), _items(other)
        return count == other_count and all(alike(a, b) for a, b in zip(values, other_values, strict=True))
    return one.equals(other)


def _items(column: pa.Array) -> tuple[Any, ...]:
    """How many items the lists or maps have, and these: of maps, the keys and the values. Arrow 26 cannot cast parts of
    maps to lists."""
    ends = column.offsets.to_pylist()
    ranges = [range(*pair) for pair, valid in zip(pairwise(ends), column.is_valid().to_pylist(), strict=True) if valid]
    places = pa.array([place for one in ranges for place in one], pa.int64())
    values = (column.values,) if pa.types.is_list(column.type) else (column.keys, column.items)
    return [len(one) for one in ranges], *(one.take(places) for one in values)


def any_blocks(seed: int) -> Blocks:
    """Splits items into blocks, with and without their sizes."""
    chance = random.Random(seed)

    def blocks(items: int) -> list[int]:
        numbers = []
        while items:
            number = chance.randint(1, items)
            items -= number
            numbers.append(chance.choice((number, -number)))
        return numbers

    return blocks
