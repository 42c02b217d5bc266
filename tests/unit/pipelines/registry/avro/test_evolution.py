"""Datums of one schema read as values of another: Avro's rules of resolution, against fastavro and by hand."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_eos.errors import SchemaError
from spark_eos.pipelines.registry.avro import Decoder, arrow_type, parse
from tests.support.judges.avro import datum, has_bytes, in_fastavro, kind, record, schemas, values, varint
from tests.support.judges.equality import same

NUMBERS, TEXTS = {"int", "long", "float", "double"}, {"string", "bytes"}
#: What a type may be read as. Of a whole number as a float, fastavro keeps more digits than a float has.
PROMOTED = {
    "int": ("int", "long", "double"),
    "long": ("long", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}
ENUM = {"type": "enum", "name": "Added", "symbols": ["X", "Y"]}
#: Types of fields that a reader has besides, and their defaults.
ADDED = [
    ("int", 5),
    ("string", "é"),
    ("double", 1.5),
    (["null", "int"], None),
    (["int", "null"], 7),
    ({"type": "array", "items": "int"}, [1, 2]),
    ({"type": "map", "values": "string"}, {"k": "v"}),
    (ENUM, "Y"),
    ({"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "int", "default": 3}]}, {"a": 4}),
]


def decoder(writer: Any, reader: Any) -> Decoder:
    """The decoder of two schemas, as trees of JSON."""
    return Decoder(parse(json.dumps(writer)), parse(json.dumps(reader)))


def evolved(draw: Any, tree: Any) -> Any:
    """A reader's schema that could have grown out of a writer's."""
    match kind(tree):
        case "record":
            return evolved_record(draw, tree)
        case "array":
            items = evolved(draw, tree["items"])
            return {"type": "array", "items": items if has_bytes(items) else tree["items"]}
        case "map":
            return {"type": "map", "values": evolved(draw, tree["values"])}
        case "enum":
            symbols = ["N", *tree["symbols"][draw(st.integers(0, len(tree["symbols"]) - 1)) :]]
            return tree | {"symbols": symbols} | draw(st.sampled_from(({}, {"default": "N"})))
        case "union":
            some = [evolved(draw, branch) for branch in tree if draw(st.integers(0, 4))]
            some = some or [evolved(draw, tree[0])]
            return draw(st.permutations(some))
    reader = draw(st.sampled_from(PROMOTED.get(tree, (tree,)))) if isinstance(tree, str) else tree
    return ["null", reader] if reader != "null" and draw(st.booleans()) else reader


def evolved_record(draw: Any, tree: Any) -> Any:
    """With fields in another order, fewer, more, and under other names."""
    fields = []
    for field in tree["fields"]:
        if draw(st.integers(0, 4)):
            one = {"name": field["name"], "type": evolved(draw, field["type"])}
            fields.append(one if draw(st.booleans()) else one | {"name": f"x{one['name']}", "aliases": [one["name"]]})
    if draw(st.booleans()) and "." not in tree["name"]:
        type_, default = draw(st.sampled_from(ADDED))
        fields.append({"name": f"new{tree['name']}", "type": renamed(type_, tree["name"]), "default": default})
    names = draw(st.sampled_from(({}, {"name": f"X{tree['name']}", "aliases": [f"n.s.{tree['name']}"]})))
    return tree | {"fields": draw(st.permutations(fields))} | names


def renamed(tree: Any, name: str) -> Any:
    """With a name of its own, as each type is defined once."""
    return tree | {"name": f"{tree['name']}{name}"} if isinstance(tree, dict) and "name" in tree else tree


def has_choices(tree: Any) -> bool:
    """Whether a union has branches that could stand for one another: there, fastavro takes the first, whatever was
    written, as the specification has it; see `test_a_value_is_read_as_the_branch_of_its_own_type`."""
    inner = {"array": "items", "map": "values"}.get(kind(tree))
    if inner:
        return has_choices(tree[inner])
    if kind(tree) == "record":
        return any(has_choices(field["type"]) for field in tree["fields"])
    if kind(tree) != "union":
        return False
    kinds = {kind(branch) for branch in tree}
    return any(len(kinds & some) > 1 for some in (NUMBERS, TEXTS)) or any(map(has_choices, tree))


@st.composite
def pairs(draw: Any) -> tuple[Any, Any, list[Any]]:
    """A writer's schema, a reader's, and values that were written."""
    writer = draw(schemas(with_logical=False))
    reader = evolved(draw, writer)
    assume(not has_choices(writer) and not has_choices(reader) and not doubled(reader))
    return writer, reader, draw(st.lists(values(writer), min_size=1, max_size=5))


def doubled(tree: Any) -> bool:
    """Whether a union has a type twice, after a branch was promoted."""
    if isinstance(tree, list):
        names = [branch["name"] if isinstance(branch, dict) and "name" in branch else kind(branch) for branch in tree]
        return len(set(names)) < len(names) or any(isinstance(branch, list) or doubled(branch) for branch in tree)
    if isinstance(tree, dict):
        parts = [tree.get("items"), tree.get("values"), *(field["type"] for field in tree.get("fields", []))]
        return any(doubled(part) for part in parts if part is not None)
    return False


@given(pairs())
def test_evolutions_are_read_as_fastavro_does(pair):
    """The same values, and bad rows where it finds no place for a value."""
    writer, reader, tagged = pair
    data = [datum(writer, value) for value in tagged]
    schemas = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    expected = []
    for one in data:
        try:
            expected.append(fastavro.schemaless_reader(io.BytesIO(one), *schemas))
        except (fastavro.read.SchemaResolutionError, UnicodeDecodeError):
            expected.append(None)
    try:
        found = decoder(writer, reader).decode(pa.array(data, pa.binary()))
    except SchemaError as error:
        assert error.condition == "EOS_AVRO_SCHEMA" and expected == [None] * len(data)
        return
    assert found.rows.type == arrow_type(parse(json.dumps(reader)))
    found.rows.validate(full=True)
    assert sorted(found.bad) == [n for n, value in enumerate(expected) if value is None]
    for row, value in zip(found.rows.to_pylist(), expected, strict=True):
        assert value is None or same(in_fastavro(reader, row), value)


def read(writer: Any, reader: Any, *data: bytes) -> tuple[list[Any], dict[int, str]]:
    """The values of field a, None for those of bad rows, and why rows are bad."""
    found = decoder(record(("a", writer)), record(("a", reader))).decode(pa.array(data, pa.binary()))
    return [row and row["a"] for row in found.rows.to_pylist()], found.bad


def refused(writer: Any, reader: Any) -> SchemaError:
    """Why values of one schema are not read as those of another."""
    with pytest.raises(SchemaError) as caught:
        decoder(writer, reader)
    return caught.value


def test_a_value_is_read_as_the_branch_of_its_own_type():
    """Not as the first one that it could be promoted to: a union that did not change is read as it was written."""
    assert read("int", ["double", "int"], b"\6") == ([{"member0": None, "member1": 3}], {})
    assert read(["double", "int"], ["double", "int"], b"\2\6") == ([{"member0": None, "member1": 3}], {})
    assert read(["long", "int"], ["string", "double"], b"\2\6") == ([{"member0": None, "member1": 3.0}], {})
    fixed = [{"type": "fixed", "name": name, "size": 1} for name in "FG"]
    assert read(fixed, fixed, b"\2a") == ([{"member0": None, "member1": b"a"}], {})


@pytest.mark.parametrize("writer", ["int", "long"])
def test_a_whole_number_is_read_as_the_nearest_float(writer):
    """Which has 24 bits."""
    assert read(writer, "float", varint(2**24 + 3)) == ([2.0**24 + 4], {})


def test_records_of_a_union_are_told_by_their_names():
    """Also by an alias; another name is no match, whatever the fields are."""
    one, other, third = (record(("x", "int")) | {"name": name} for name in ("One", "Other", "Third"))
    alias = third | {"aliases": ["Other"]}
    assert read([one, other], [alias, one], b"\2\6", b"\0\6") == (
        [{"member0": {"x": 3}, "member1": None}, {"member0": None, "member1": {"x": 3}}],
        {},
    )
    rows, bad = read([one, other], [one, third], b"\0\6", b"\2\6")
    assert rows == [{"member0": {"x": 3}, "member1": None}, None]
    assert bad == {1: "R.a: the reader's schema has no place for a Other"}
    assert refused(one, other).entry == "EOS_AVRO_SCHEMA.mismatch"
    assert decoder(one | {"namespace": "old"}, one | {"namespace": "new"}).type == pa.struct(
        [pa.field("x", pa.int32(), nullable=False)]
    )


@pytest.mark.parametrize(
    ("writer", "reader", "datum_", "value"),
    [
        ("timestamp-millis", "timestamp-micros", b"\2", dt.datetime(1970, 1, 1, 0, 0, 0, 1000, dt.UTC)),
        ("timestamp-micros", "timestamp-millis", b"\2", dt.datetime(1970, 1, 1, 0, 0, 0, 1, dt.UTC)),
        ("timestamp-micros", "timestamp-nanos", b"\2", 1000),
        ("local-timestamp-millis", "local-timestamp-micros", b"\2", dt.datetime(1970, 1, 1, 0, 0, 0, 1000)),
        ("time-millis", "time-micros", b"\2", dt.time(0, 0, 0, 1000)),
        ("timestamp-millis", None, b"\2", 1),
        (None, "timestamp-millis", b"\2", dt.datetime(1970, 1, 1, 0, 0, 0, 1000, dt.UTC)),
    ],
)
def test_times_are_converted_to_the_unit_that_is_wanted(writer, reader, datum_, value):
    """Where both have one; else the number counts."""
    bases = {"time-millis": "int"}
    trees = [{"type": bases.get(name, "long"), "logicalType": name} if name else "long" for name in (writer, reader)]
    assert read(*trees, datum_) == ([value], {})


def decimal(precision: int, scale: int) -> Any:
    """A decimal of bytes."""
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def test_a_decimal_may_get_more_digits_of_the_same_scale():
    """And is still held to those that the writer may have written; another scale would be another number."""
    rows, bad = read(decimal(2, 1), decimal(9, 1), b"\2\x63", b"\2\x64")
    assert rows == [Decimal("9.9"), None] and list(bad) == [1]
    assert refused(decimal(2, 1), decimal(2, 0)).entry == "EOS_AVRO_SCHEMA.mismatch"
    assert "decimal(9, 1)" in refused(decimal(9, 1), decimal(8, 1)).message
    assert read(decimal(2, 1), "bytes", b"\2\x63") == ([b"\x63"], {})


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ("long", "int"),
        ("double", "float"),
        ("int", "string"),
        ("string", "int"),
        ("boolean", "int"),
        ({"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "time-millis"}),
        ({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "local-timestamp-millis"},
        ),
        ({"type": "long", "logicalType": "timestamp-nanos"}, {"type": "long", "logicalType": "timestamp-micros"}),
        ({"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "string"}),
        ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}),
        (["int", "string"], "boolean"),
        ("int", ["string", "boolean"]),
    ],
)
def test_types_that_do_not_match_are_refused_with_their_path(writer, reader):
    """Before any value is read."""
    error = refused(record(("a", writer)), record(("a", reader)))
    assert error.entry == "EOS_AVRO_SCHEMA.mismatch"
    assert error.parameters["path"].startswith("R.a")


def test_a_field_without_default_has_to_be_written():
    """A default of null is one."""
    error = refused(record(("a", "int")), record(("a", "int"), ("b", "int")))
    assert (error.entry, error.parameters) == ("EOS_AVRO_SCHEMA.missing", {"path": "R.b"})
    type_ = decoder(record(("a", "int")), record(("b", ["null", "int"], {"default": None}))).type
    assert type_ == pa.struct([("b", pa.int32())])


@pytest.mark.parametrize(
    ("tree", "default"),
    [
        ("int", 2**31),
        ("int", 1.0),
        ("int", True),
        ("int", None),
        ("boolean", 1),
        ("string", 1),
        ("string", "\ud800"),
        ("bytes", "€"),
        ("float", 1e300),
        ({"type": "fixed", "name": "F", "size": 2}, "a"),
        (ENUM, "Z"),
        ({"type": "array", "items": "int"}, ["a"]),
        ({"type": "map", "values": "int"}, []),
        (["null", "int"], "a"),
        (record(("x", "int")) | {"name": "S"}, {}),
        ({"type": "string", "logicalType": "uuid"}, "a"),
    ],
)
def test_a_default_that_is_no_value_is_refused_where_it_is_needed(tree, default):
    """With the path of the field; as long as the field is written, nobody needs it."""
    reader = record(("a", "int"), ("b", tree, {"default": default}))
    error = refused(record(("a", "int")), reader)
    assert error.entry == "EOS_AVRO_SCHEMA.default" and error.parameters["path"].startswith("R.b")
    assert decoder(reader, reader)


def test_a_default_stands_in_json_as_its_base():
    """Of a logical type, too; bytes as the characters up to U+00FF."""
    day = {"type": "int", "logicalType": "date"}
    fields = (
        ("day", day, {"default": 1}),
        ("tenth", decimal(3, 1), {"default": "\x0f"}),
        ("raw", "bytes", {"default": "ÿ\0"}),
    )
    found = decoder(record(("a", "int")), record(*fields)).decode(pa.array([b"\2", b"\4", b""], pa.binary()))
    value = {"day": dt.date(1970, 1, 2), "tenth": Decimal("1.5"), "raw": b"\xff\0"}
    assert found.rows.to_pylist() == [value, value, None] and list(found.bad) == [2]


def test_a_field_is_found_by_its_name_before_an_alias():
    """A field of the writer's is one field of the reader's."""
    writer = record(("a", "int"), ("b", "int"))
    reader = record(("b", "int"), ("c", "int", {"aliases": ["b", "a"]}))
    found = decoder(writer, reader).decode(pa.array([b"\2\4"], pa.binary()))
    assert found.rows.to_pylist() == [{"b": 2, "c": 1}]
    twice = record(("c", "int", {"aliases": ["a"]}), ("d", "int", {"aliases": ["a"]}))
    assert refused(writer, twice).parameters == {"path": "R.d"}


def test_what_the_reader_leaves_out_still_has_to_be_right():
    """A datum that is malformed there is bad."""
    found = decoder(record(("a", "string"), ("b", "int")), record(("b", "int"))).decode(
        pa.array([b"\2a\2", b"\2\xff\2"], pa.binary())
    )
    assert found.rows.to_pylist() == [{"b": 1}, None]
    assert found.bad == {1: "R.a: a string is not UTF-8"}
