"""Avro schemas: what is read, what is refused with which path, and which types of Arrow they have."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from spark_eos.errors import SchemaError
from spark_eos.pipelines.registry.avro import DatumEncoder, arrow_type, parse
from spark_eos.pipelines.registry.avro.resolve import resolve
from spark_eos.pipelines.registry.avro.schema import (
    MOST_LEVELS,
    NULL,
    Array,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    RecordType,
    Union,
)

LONG = Primitive("long")


def parsed(tree: object, *references: object):
    """The schema of a tree of JSON."""
    return parse(json.dumps(tree), [json.dumps(one) for one in references])


def record(*fields: object, name: str = "R", **more: object) -> dict[str, object]:
    """A record of fields a, b, … of these types."""
    named = [{"name": chr(ord("a") + n), "type": type_} for n, type_ in enumerate(fields)]
    return {"type": "record", "name": name, "fields": named, **more}


def refused(entry: str, tree: object, *references: object) -> SchemaError:
    """The error by which a schema is refused."""
    with pytest.raises(SchemaError) as caught:
        parsed(tree, *references)
    assert caught.value.entry == f"EOS_AVRO_SCHEMA.{entry}"
    return caught.value


def test_every_kind_of_type_is_read():
    """Into the tree that its text describes, with full names."""
    tree = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "aliases": ["Sale", "old.Order"],
        "doc": "ignored",
        "fields": [
            {"name": "id", "type": "long", "default": 7, "aliases": ["number"]},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}},
            {"name": "hash", "type": {"type": "fixed", "name": "other.Hash", "size": 4}},
            {"name": "lines", "type": {"type": "array", "items": {"type": "string"}}},
            {"name": "counts", "type": {"type": "map", "values": ["null", "Kind"]}, "default": {}},
            {"name": "nothing", "type": "null", "default": None},
        ],
    }
    kind = Enum("shop.Kind", ("A", "B"), default="A")
    assert parsed(tree) == RecordType(
        "shop.Order",
        (
            Field("id", LONG, ("number",), "7"),
            Field("kind", kind),
            Field("hash", Fixed("other.Hash", 4)),
            Field("lines", Array(Primitive("string"))),
            Field("counts", Map(Union((NULL, kind))), default="{}"),
            Field("nothing", NULL, default="null"),
        ),
        ("shop.Sale", "old.Order"),
    )


def test_a_name_is_looked_for_in_its_namespace_first():
    """The same short name in two namespaces is two types; a name with dots is a full one."""
    inner = {"type": "fixed", "name": "F", "namespace": "b", "size": 1}
    outer = {"type": "fixed", "name": "F", "size": 2}
    tree = {**record(outer, inner, "F", "b.F"), "namespace": "a"}
    assert [field.schema.size for field in parsed(tree).fields] == [2, 1, 2, 1]


def test_references_define_what_the_text_uses():
    """Each after those that it uses itself, and no type twice."""
    small = {"type": "fixed", "name": "x.F", "size": 3}
    middle = {**record("F", name="M"), "namespace": "x"}
    assert parsed(record("x.M", "x.F"), small, middle).fields[0].schema.fields[0].schema == Fixed("x.F", 3)
    assert "'x.M'" in refused("invalid", record("x.M"), small).message
    assert "twice" in refused("invalid", small, small).message


@pytest.mark.parametrize(
    ("tree", "logical"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal(9, 2)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9}, Decimal(9, 0)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": "9"}, None),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9}, Decimal(9, 0)),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 10}, None),
        ({"type": "fixed", "name": "F", "size": 0, "logicalType": "decimal", "precision": 1}, None),
        ({"type": "fixed", "name": "F", "size": 2000, "logicalType": "decimal", "precision": 4816}, Decimal(4816, 0)),
        ({"type": "fixed", "name": "F", "size": 2000, "logicalType": "decimal", "precision": 4817}, None),
        ({"type": "fixed", "name": "F", "size": 2**31 - 1, "logicalType": "decimal", "precision": 9}, Decimal(9, 0)),
        ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, "duration"),
        ({"type": "fixed", "name": "F", "size": 11, "logicalType": "duration"}, None),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, "uuid"),
        ({"type": "string", "logicalType": "uuid"}, "uuid"),
        ({"type": "bytes", "logicalType": "uuid"}, None),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "long", "logicalType": "date"}, None),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp-micros"),
        ({"type": "long", "logicalType": "of our own"}, None),
    ],
)
def test_a_logical_type_that_is_unknown_or_unfit_is_its_base(tree, logical):
    """As the specification has it: readers ignore it."""
    assert parsed(tree).logical == logical


@pytest.mark.parametrize(
    ("tree", "path", "reason"),
    [
        (record("lang"), "R.a", "no type 'lang'"),
        (record({"type": "array"}), "R.a", "'items' is missing"),
        (record({"type": "map", "values": ["null", 7]}), "R.a{}|1", "a type is"),
        (record({"type": "array", "items": record(["int", "int"], name="S")}), "R.a[].a", "'int' is there twice"),
        (record([]), "R.a", "no branch"),
        (["null", ["int"]], "the schema", "a union"),
        ({"type": "record", "name": "R", "fields": [{"name": "", "type": "int"}]}, "R", "''"),
        ({"type": "record", "name": "R", "fields": 2 * [{"name": "a", "type": "int"}]}, "R", "'a' is there twice"),
        ({"type": "record", "name": "R\n", "fields": []}, "the schema", r"'R\n'"),
        ({"type": "record", "name": "a.", "fields": []}, "the schema", "'a.'"),
        ({"type": "record", "name": "R", "namespace": "a\x1b", "fields": []}, "the schema", r"\x1b"),
        ({"type": "record", "name": "R", "fields": {}}, "R", "no list"),
        ({"type": "record", "name": "R", "fields": [], "aliases": "S"}, "R", "aliases"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "the schema", "'A' is there twice"),
        ({"type": "enum", "name": "E", "symbols": ["A", 7]}, "the schema", "7"),
        ({"type": "enum", "name": "E", "symbols": ["A", "\ud800"]}, "the schema", r"'\ud800'"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "the schema", "'B'"),
        ({"type": "enum", "name": "E", "symbols": []}, "the schema", "symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "the schema", "-1"),
        ({"type": "fixed", "name": "F", "size": True}, "the schema", "True"),
        ({"type": "fixed", "name": "int", "size": 1}, "the schema", "'int'"),
        (record(*2 * [{"type": "fixed", "name": "F", "size": 1}]), "R.b", "defined twice"),
        ({"name": "R"}, "the schema", "a type is"),
        ({"type": 3}, "the schema", "3 is no type"),
    ],
)
def test_what_the_specification_forbids_is_refused_with_its_path(tree, path, reason):
    """In a message that says where it is and what is wrong."""
    error = refused("invalid", tree)
    assert error.parameters["path"] == path
    assert reason in error.parameters["reason"]


@pytest.mark.parametrize("name", ["my-server.public.Key", "größe", "1R", "a b", "a$1"])
def test_names_that_other_clients_take_are_read(name):
    """Of types, fields and symbols: Debezium has names of servers and tables in them."""
    symbols = {"type": "enum", "name": f"n-1.{name}", "symbols": [name]}
    tree = {"type": "record", "name": name, "fields": [{"name": name, "type": symbols}]}
    field = Field(name, Enum(f"n-1.{name}", (name,)))
    assert parsed(tree) == RecordType(name, (field,))


@pytest.mark.parametrize("text", ["", "{", "long", '{"type": NaN}'])
def test_what_is_no_json_is_refused(text):
    """Python's own extensions of JSON, too."""
    with pytest.raises(SchemaError, match="it is not JSON"):
        parse(text)


def test_a_recursive_type_is_refused_by_name():
    """Directly, or through another one; a type that is used twice is not recursive."""
    tree = {**record(["null", "R"]), "namespace": "n"}
    assert refused("recursive", tree).parameters == {"path": "R.a|1", "name": "n.R"}
    through = record({"type": "array", "items": record({"type": "map", "values": "R"}, name="S")})
    assert refused("recursive", through).parameters == {"path": "R.a[].a{}", "name": "R"}
    assert len(parsed(record({"type": "fixed", "name": "F", "size": 1}, "F")).fields) == 2


def arrays(levels: int, items: object = "int") -> object:
    """Arrays within one another."""
    for _ in range(levels):
        items = {"type": "array", "items": items}
    return items


def test_too_many_levels_are_refused():
    """Also of a type that is defined elsewhere, and where JSON itself is too deep for Python."""
    assert isinstance(parsed(arrays(MOST_LEVELS - 1)), Array)
    assert f"more than {MOST_LEVELS} levels" in refused("large", arrays(MOST_LEVELS)).message
    half = record(arrays(MOST_LEVELS // 2), name="H")
    refused("large", record(half, arrays(MOST_LEVELS // 2, "H")))
    with pytest.raises(SchemaError) as caught:
        parse("[" * 100_000)
    assert caught.value.entry == "EOS_AVRO_SCHEMA.large"


@pytest.mark.parametrize(
    "items", ["null", record(name="E"), record("null", name="E"), {"type": "fixed", "name": "F", "size": 0}]
)
def test_arrays_of_items_without_bytes_are_refused(items):
    """Three bytes could claim a million of them."""
    assert refused("empty_items", record({"type": "array", "items": items})).parameters == {"path": "R.a"}


def test_a_decimal_that_no_column_can_hold_is_refused():
    """Though the specification allows it."""
    tree = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 39}
    assert refused("digits", record(tree)).parameters == {"path": "R.a", "scale": 39, "most": 38}


MICROS = pa.timestamp("us", "UTC")


TYPES: list[tuple[object, pa.DataType]] = [
    ("null", pa.null()),
    ("boolean", pa.bool_()),
    ("int", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("bytes", pa.binary()),
    ("string", pa.string()),
    ({"type": "fixed", "name": "F", "size": 3}, pa.binary()),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 38}, pa.decimal128(38, 38)),
    ({"type": "int", "logicalType": "date"}, pa.date32()),
    ({"type": "int", "logicalType": "time-millis"}, pa.time64("us")),
    ({"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
    ({"type": "long", "logicalType": "timestamp-millis"}, MICROS),
    ({"type": "long", "logicalType": "timestamp-micros"}, MICROS),
    ({"type": "long", "logicalType": "timestamp-nanos"}, pa.int64()),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us")),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
    ({"type": "long", "logicalType": "local-timestamp-nanos"}, pa.int64()),
    ({"type": "string", "logicalType": "uuid"}, pa.string()),
    ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, pa.string()),
    (["null", "int"], pa.int32()),
    (["int"], pa.int32()),
    (["null"], pa.null()),
    (["int", "null", "string"], pa.struct({"member0": pa.int32(), "member1": pa.string()})),
    (
        {"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"},
        pa.struct([pa.field(name, pa.int64(), nullable=False) for name in ("months", "days", "millis")]),
    ),
    (
        record("int", ["string", "null"], "null"),
        pa.struct([pa.field("a", pa.int32(), nullable=False), ("b", pa.string()), ("c", pa.null())]),
    ),
    (arrays(1), pa.list_(pa.field("element", pa.int32(), nullable=False))),
    (arrays(1, ["null", "int"]), pa.list_(pa.field("element", pa.int32()))),
    ({"type": "map", "values": ["null", "int"]}, pa.map_(pa.string(), pa.int32())),
    ({"type": "map", "values": "int"}, pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))),
]


@pytest.mark.parametrize(("tree", "type_"), TYPES)
def test_each_schema_has_a_type_of_arrow_and_of_spark(tree, type_):
    """With fields nullable where the schema has null; Spark makes the same type of Arrow of its own, and such columns
    can be written."""
    found = arrow_type(parsed(tree))
    assert found.equals(type_)
    spark = from_arrow_type(found)
    again = to_arrow_type(spark, timezone="UTC")
    assert from_arrow_type(again) == spark
    DatumEncoder(parsed(tree), again)


def lists_of_lists(length: int) -> str:
    """The schema of a record whose default has so many items at each of three levels."""
    inner: object = record("int", name="R0")
    inner["fields"][0]["default"] = 1
    for level in range(1, 4):
        inner = record({"type": "array", "items": inner}, name=f"R{level}")
        inner["fields"][0]["default"] = [{}] * length
    field = {"name": "r", "type": ["null", inner], "default": {}}
    return json.dumps({"type": "record", "name": "Outer", "fields": [field]})


def test_a_short_default_of_many_values_is_refused():
    """A few levels more, and it would fill the memory."""
    empty = parsed(record(name="Outer"))
    resolve(empty, parse(lists_of_lists(39)))
    with pytest.raises(SchemaError, match="has more than 65536 bytes") as caught:
        resolve(empty, parse(lists_of_lists(40)))
    assert caught.value.entry == "EOS_AVRO_SCHEMA.long_default"
