"""Writing columns as Avro datums: which types of Arrow fit, and which values make their row bad."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_eos.errors import SchemaError
from spark_eos.pipelines.registry.avro import DatumEncoder, Decoder, arrow_type, parse
from tests.support.judges.avro import record, varint

UUID = "12345678-9abc-def0-1234-56789abcdef0"
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
TIME = {"type": "int", "logicalType": "time-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
FIXED_DECIMAL = {"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 2}
DURATION = {"type": "fixed", "name": "P", "size": 12, "logicalType": "duration"}
FIXED_UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
ARRAY = {"type": "array", "items": "int"}
MAP = {"type": "map", "values": "int"}
WIDE = ["int", "string"]
PAIR = pa.struct([("member0", pa.int32()), ("member1", pa.string())])


def encoder(tree: Any, type_: pa.DataType) -> DatumEncoder:
    """The encoder of a record with one field, a."""
    return DatumEncoder(parse(json.dumps(record(("a", tree)))), pa.struct([("a", type_)]))


def structs(column: pa.Array) -> pa.StructArray:
    """Rows with one field, a."""
    return pa.StructArray.from_arrays([column], ["a"])


MICROS = pa.timestamp("us", "UTC")
TEN_MILLIS = dt.datetime(1970, 1, 1, 0, 0, 0, 10_999)
HUNDRED = pa.array([Decimal(1), Decimal(100), Decimal(2)], pa.decimal128(9, 2))


@pytest.mark.parametrize(
    ("tree", "column", "datum"),
    [
        ("int", pa.array([3], pa.int8()), b"\6"),
        ("int", pa.array([3], pa.uint64()), b"\6"),
        ("long", pa.array([2**63 - 1], pa.uint64()), varint(2**63 - 1)),
        ("long", pa.array([-3], pa.int16()), b"\5"),
        ("float", pa.array(np.array([1.5], np.float16)), b"\0\0\xc0\x3f"),
        ("double", pa.array([1], pa.int32()), b"\0\0\0\0\0\0\xf0\x3f"),
        ("double", pa.array([1.0], pa.float32()), b"\0\0\0\0\0\0\xf0\x3f"),
        ("string", pa.array(["ab"], pa.large_string()), b"\4ab"),
        ("string", pa.array(["ab"], pa.string_view()), b"\4ab"),
        ("string", pa.array(["ab"]).dictionary_encode(), b"\4ab"),
        ("bytes", pa.array([b"ab"], pa.large_binary()), b"\4ab"),
        ("bytes", pa.array([b"ab"], pa.binary(2)), b"\4ab"),
        (FIXED, pa.array([b"ab"], pa.binary(2)), b"ab"),
        (ENUM, pa.array(["B"]).dictionary_encode(), b"\2"),
        (ENUM, pa.array(["B"], pa.large_string()), b"\2"),
        (ARRAY, pa.array([[1, 2]], pa.large_list(pa.int64())), b"\4\2\4\0"),
        (ARRAY, pa.array([[9, 9], [1, 2]], pa.list_(pa.int64(), 2))[1:], b"\4\2\4\0"),
        (["null", "int"], pa.array([None]), b"\0"),
        (DECIMAL, pa.array([Decimal("-1.5")], pa.decimal128(3, 1)), b"\4\xff\x6a"),
        (DECIMAL, pa.array([Decimal("-1.28")], pa.decimal128(38, 2)), b"\2\x80"),
        (DECIMAL, pa.array([Decimal("1.28")], pa.decimal128(38, 2)), b"\4\0\x80"),
        (FIXED_DECIMAL, pa.array([Decimal("-1.5")], pa.decimal128(3, 1)), b"\xff\x6a"),
        (MILLIS, pa.array([TEN_MILLIS], MICROS), b"\x14"),
        (MILLIS, pa.array([dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)], MICROS), b"\1"),
        (MILLIS, pa.array([dt.datetime(1970, 1, 1, 0, 0, 1)], pa.timestamp("s", "Europe/Berlin")), varint(1000)),
        (LOCAL, pa.array([TEN_MILLIS], pa.timestamp("ns")), varint(10_999)),
        (NANOS, pa.array([TEN_MILLIS], MICROS), varint(10_999_000)),
        (NANOS, pa.array([7]), b"\16"),
        (TIME, pa.array([dt.time(0, 0, 0, 10_999)]), b"\x14"),
        (TIME, pa.array([dt.time(0, 0, 1)], pa.time32("s")), varint(1000)),
        (FIXED_UUID, pa.array([UUID.upper()]), bytes.fromhex(UUID.replace("-", ""))),
        (["string", "null", "int"], pa.array([None], pa.struct({"member0": pa.string(), "member1": pa.int8()})), b"\2"),
        (DURATION, pa.array([{"days": 2, "months": 1, "millis": 2**32 - 1}]), b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff"),
    ],
)
def test_types_that_lose_nothing_fit(tree, column, datum):
    """Other widths, other layouts, and times of other units, which are cut down to the schema's."""
    found = encoder(tree, column.type).encode(structs(column))
    assert (found.values.to_pylist(), found.bad) == ([datum], {})


@pytest.mark.parametrize(
    ("tree", "type_"),
    [
        ("int", pa.float64()),
        ("int", pa.bool_()),
        ("int", pa.null()),
        ("boolean", pa.int8()),
        ("float", pa.float64()),
        ("float", pa.int32()),
        ("double", pa.int64()),
        ("string", pa.binary()),
        ("bytes", pa.string()),
        (FIXED, pa.string()),
        (ENUM, pa.int32()),
        (ARRAY, pa.int32()),
        (ARRAY, pa.list_(pa.string())),
        (MAP, pa.map_(pa.int32(), pa.int32())),
        (MAP, pa.struct([("k", pa.int32())])),
        ("null", pa.int32()),
        (DECIMAL, pa.decimal128(5, 3)),
        (DECIMAL, pa.decimal128(38, 0)),
        (DECIMAL, pa.float64()),
        (MILLIS, pa.timestamp("us")),
        (MILLIS, pa.int64()),
        (LOCAL, MICROS),
        (TIME, pa.int32()),
        (FIXED_UUID, pa.binary()),
        (DURATION, pa.struct([("months", pa.int64()), ("days", pa.int64())])),
        (WIDE, pa.int32()),
        (WIDE, pa.struct([("member0", pa.int32()), ("member2", pa.string())])),
        (WIDE, pa.struct([("member0", pa.string()), ("member1", pa.string())])),
        (record(("x", "int")) | {"name": "S"}, pa.int32()),
    ],
)
def test_types_that_could_lose_something_are_refused(tree, type_):
    """With the path of the column, and what to cast it to."""
    with pytest.raises(SchemaError) as caught:
        encoder(tree, type_)
    assert caught.value.entry == "EOS_AVRO_COLUMN.type"
    assert caught.value.parameters["path"].startswith("R.a")


def test_fields_are_found_by_name():
    """In any order; one without a column is written as its default, and columns without a field are refused."""
    tree = record(("a", "int"), ("b", "string", {"default": "x"}), ("c", ["null", "int"], {"default": None}))
    schema = parse(json.dumps(tree))
    type_ = pa.struct({"c": pa.int32(), "a": pa.int32()})
    rows = pa.array([{"c": None, "a": 1}, {"c": 2, "a": 2}], type_)
    assert DatumEncoder(schema, type_).encode(rows, prefix=b">").values.to_pylist() == [b">\2\2x\0", b">\4\2x\2\4"]
    assert DatumEncoder(schema, type_).encode(rows[1:]).values.to_pylist() == [b"\4\2x\2\4"]
    for names, entry, path in ((["b"], "missing", "R.a"), (["a", "d"], "unknown", "R.d"), (["a", "a"], "twice", "R.a")):
        with pytest.raises(SchemaError) as caught:
            DatumEncoder(schema, pa.struct([(name, pa.int32() if name == "a" else pa.string()) for name in names]))
        assert (caught.value.entry, caught.value.parameters["path"]) == (f"EOS_AVRO_COLUMN.{entry}", path)


@pytest.mark.parametrize(
    ("tree", "column", "reason"),
    [
        ("int", pa.array([1, None, 2]), "R.a is null"),
        ("int", pa.array([1, 2**31, 2]), "R.a is not an int of 32 bits"),
        ("int", pa.array([1, -(2**31) - 1, 2]), "R.a is not an int of 32 bits"),
        ("int", pa.array([1, 2**32 - 1, 2], pa.uint32()), "R.a is not an int of 32 bits"),
        ("long", pa.array([1, 2**63, 2], pa.uint64()), "R.a is not a long of 64 bits"),
        ("string", pa.array(["a", None, "b"]), "R.a is null"),
        ("double", pa.array([1.0, None, 2.0]), "R.a is null"),
        ("boolean", pa.array([True, None, False]), "R.a is null"),
        (FIXED, pa.array([b"ab", b"abc", b"cd"]), "R.a does not have 2 bytes"),
        (ENUM, pa.array(["A", "C", "B"]), "R.a is no symbol of the enum"),
        (DECIMAL, HUNDRED, "R.a has more than 4 digits"),
        (DECIMAL, pa.array([Decimal(1), Decimal(-100), Decimal(2)], pa.decimal128(9, 0)), "R.a has more than 4 digits"),
        (FIXED_DECIMAL, HUNDRED, "R.a has more than 4 digits"),
        (NANOS, pa.array([1, 2**62, 2]).view(MICROS), "R.a is not a long of 64 bits"),
        (NANOS, pa.array([1, -9223372036854776, 2]).view(MICROS), "R.a is not a long of 64 bits"),
        (TIME, pa.array([1, 86_400_000_000, 2]).view(pa.time64("us")), "R.a is not a time of day"),
        ({"type": "string", "logicalType": "uuid"}, pa.array([UUID, "no", UUID]), "R.a is not a uuid"),
        (FIXED_UUID, pa.array([UUID, "no", UUID]), "R.a is not a uuid"),
        (ARRAY, pa.array([[1], None, []], pa.list_(pa.int32())), "R.a is null"),
        (ARRAY, pa.array([[1], [1, None], []], pa.list_(pa.int32())), "R.a[] is null"),
        (ARRAY, pa.array([[1], [1, 2**31], []], pa.list_(pa.int64())), "R.a[] is not an int of 32 bits"),
        (MAP, pa.array([[("a", 1)], [("a", None)], []], pa.map_(pa.string(), pa.int32())), "R.a{} is null"),
        (WIDE, pa.array([{"member0": 1}, None, {"member1": "a"}], PAIR), "R.a is null"),
        (WIDE, pa.array([{"member0": 1}, {"member0": None}, {"member1": "a"}], PAIR), "R.a is null"),
        (
            WIDE,
            pa.array([{"member0": 1}, {"member0": 1, "member1": "a"}, {"member1": "a"}], PAIR),
            "R.a has values for several members of the union",
        ),
        (
            ["null", *WIDE],
            pa.array([{"member0": 1}, {"member0": None}, None], PAIR),
            "R.a has no value for any member of the union",
        ),
        (
            DURATION,
            pa.array([{"months": n, "days": 0, "millis": 0} for n in (1, 2**32, 2)]),
            "R.a is no duration of unsigned 32 bits",
        ),
        (
            record(("x", "int")) | {"name": "S"},
            pa.array([{"x": 1}, None, {"x": 2}], pa.struct([("x", pa.int32())])),
            "R.a is null",
        ),
    ],
)
def test_a_value_that_does_not_fit_makes_its_row_bad_and_no_other(tree, column, reason):
    """It has a reason, and no bytes; the others have those that they have without it."""
    writer = encoder(tree, column.type)
    found = writer.encode(structs(column))
    assert found.bad == {1: reason}
    others = [writer.encode(structs(column[n : n + 1])).values[0].as_py() for n in (0, 2)]
    assert None not in others
    assert found.values.to_pylist() == [others[0], None, others[1]]


def test_what_lies_under_null_is_not_looked_at():
    """A column may have anything there: numbers out of range, nulls, items of lists."""
    inner = pa.StructArray.from_arrays([pa.array([1, 2**40, None]), pa.array([[1], [2**40, None], None])], ["x", "y"])
    hidden = pa.array([False, True, True])
    column = pa.StructArray.from_arrays(inner.flatten(), ["x", "y"], mask=hidden)
    assert column.field(0).to_pylist() == [1, 2**40, None]
    tree = ["null", record(("x", "int"), ("y", ARRAY)) | {"name": "S"}]
    found = encoder(tree, column.type).encode(structs(column))
    assert (found.values.to_pylist(), found.bad) == ([b"\2\2\2\2\0", b"\0", b"\0"], {})
    offsets = pa.py_buffer(np.array([0, 1, 3], np.int32))
    lists = pa.Array.from_buffers(
        pa.list_(pa.int64()), 2, [pa.py_buffer(b"\1"), offsets], children=[pa.array([1, 2**40, None])]
    )
    found = encoder(["null", ARRAY], lists.type).encode(structs(lists))
    assert (found.values.to_pylist(), found.bad) == ([b"\2\2\2\0", b"\0"], {})


def test_null_rows_are_null():
    """They are no bad rows, whatever is under them; a schema that is no record is written as well."""
    rows = pa.StructArray.from_arrays([pa.array([1, None])], ["a"], mask=pa.array([False, True]))
    found = encoder("int", pa.int64()).encode(rows)
    assert (found.values.to_pylist(), found.bad) == ([b"\2", None], {})
    for tree in ("int", ["null", "int"]):
        schema = parse(json.dumps(tree))
        found = DatumEncoder(schema, arrow_type(schema)).encode(pa.array([1, None], pa.int32()))
        assert found.values.to_pylist() == [b"\2" if tree == "int" else b"\2\2", None]


def test_columns_without_rows_or_fields():
    """No rows give none, and a record without fields has a datum all the same."""
    schema = parse(json.dumps(record()))
    writer = DatumEncoder(schema, pa.struct([]))
    rows = Decoder(schema, schema).decode(pa.array([b"", None, b""], pa.binary())).rows
    assert writer.encode(rows, prefix=b"\0").values.to_pylist() == [b"\0", None, b"\0"]
    assert writer.encode(rows).values.to_pylist() == [b"", None, b""]
    assert writer.encode(rows[:0]).values.type == pa.binary()
    assert len(Decoder(schema, schema).decode(pa.array([], pa.binary())).rows) == 0


def test_many_rows_are_written_in_parts():
    """With bad ones in each, at their own numbers."""
    numbers = np.arange(50_000)
    numbers[[7, 20_000, 49_999]] = 2**40
    found = encoder("int", pa.int64()).encode(structs(pa.array(numbers)))
    assert list(found.bad) == [7, 20_000, 49_999]
    assert found.values[49_998].as_py() == varint(49_998) and found.values.null_count == 3
