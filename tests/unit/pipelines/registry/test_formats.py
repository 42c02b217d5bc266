"""What every format promises, the bytes of values without those that name their schema, and casts of columns."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import EosError
from spark_eos.pipelines.registry.codecs import reader_of, writer_of
from spark_eos.pipelines.registry.formats import cast, own_bytes
from spark_eos.pipelines.registry.schemas import Kind, Schema
from tests.support.judges.conditions import raises

LINE = {"type": "record", "name": "Line", "fields": [{"name": "what", "type": "string"}]}
AVRO = [
    {"name": "id", "type": "long"},
    {"name": "lines", "type": {"type": "array", "items": LINE}, "default": []},
    {"name": "tags", "type": {"type": "map", "values": "long"}, "default": {}},
]
JSON = {
    "id": {"type": "integer"},
    "lines": {"type": "array", "items": {"properties": {"what": {"type": "string"}}}},
    "tags": {"type": "object", "additionalProperties": {"type": "integer"}},
}
PROTOBUF = """syntax = "proto3"; message Order { int64 id = 1; repeated Line lines = 2; map<string, int64> tags = 3; }
message Line { string what = 1; }"""
#: Orders, by each kind.
SCHEMAS: dict[Kind, Schema] = {
    "AVRO": Schema("AVRO", json.dumps({"type": "record", "name": "Order", "fields": AVRO})),
    "JSON": Schema("JSON", json.dumps({"properties": JSON})),
    "PROTOBUF": Schema("PROTOBUF", PROTOBUF),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_values_of_another_kind_are_refused(kind):
    """Their bytes are none of this one."""
    for other in SCHEMAS.keys() - {kind}:
        with raises("EOS_REGISTRY_SCHEMA.other", f"written as {other}, and would be read as {kind}"):
            reader_of(SCHEMAS[kind]).of_writer(SCHEMAS[other], (0,))


@pytest.mark.parametrize("kind", SCHEMAS)
def test_rows_of_another_type_or_with_more_fields_are_refused(kind):
    """At any depth, before any of them is written: no row has to fit by chance, and no value is left out."""
    entries = {"type": "EOS_REGISTRY_SCHEMA.type", "unknown": "EOS_REGISTRY_SCHEMA.column"}
    if kind == "AVRO":
        entries = {"type": "EOS_AVRO_COLUMN.type", "unknown": "EOS_AVRO_COLUMN.unknown"}
    for row, entry, place in (
        (1, "type", ""),
        ({"id": "x"}, "type", "id"),
        ({"id": 1, "lines": [{"what": 5}]}, "type", "lines[].what"),
        ({"id": 1, "unknown": 2}, "unknown", "unknown"),
        ({"id": 1, "lines": [{"what": "a", "unknown": 2}]}, "unknown", "unknown"),
    ):
        for rows in (pa.array([row]), pa.array([row])[:0]):
            with raises(entries[entry]) as caught:
                writer_of(SCHEMAS[kind]).encode(rows, b"")
            assert place in caught.value.message


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_row_with_a_map_that_has_a_key_twice_is_bad_alone(kind):
    """Readers would keep the last value."""
    type_ = pa.struct([("id", pa.int64()), ("tags", pa.map_(pa.string(), pa.int64()))])
    tags = [[("a", 1)], [("a", 1), ("b", 2), ("a", 3)], [("a", 4)]]
    rows = pa.array([*({"id": n, "tags": one} for n, one in enumerate(tags)), None], type_)
    found = writer_of(SCHEMAS[kind]).encode(rows, b"")
    assert found.bad.keys() == {1} and "a key twice" in found.bad[1]
    assert [value is None for value in found.values.to_pylist()] == [False, True, False, True]


rows = st.lists(st.tuples(st.integers(0, 20), st.binary(max_size=8)), max_size=12)


@given(rows, st.integers(0, 3), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_each_value_keeps_its_own_bytes(rows, skipped, type_):
    """Whatever number of bytes is before them, in a slice, too."""
    values = pa.array([b"x" * begin + value for begin, value in rows], type_).slice(skipped)
    found = own_bytes(values, np.array([begin for begin, _ in rows][skipped:], np.int64))
    assert found.type == pa.binary()
    found.validate(full=True)
    assert found.to_pylist() == [value for _, value in rows][skipped:]


INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
#: What a column may have, by what a schema wants.
TAKEN = {
    pa.int32(): INTEGERS,
    pa.int64(): INTEGERS,
    pa.decimal128(20, 0): [*INTEGERS, pa.decimal32(5, 0), pa.decimal128(38, 0), pa.decimal256(50, 0)],
    pa.float32(): [*INTEGERS, pa.float16()],
    pa.float64(): [*INTEGERS, pa.float16(), pa.float32()],
    pa.string(): [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    pa.binary(): [pa.large_binary(), pa.binary_view(), pa.binary(2)],
    pa.timestamp("us", "UTC"): [pa.timestamp("s", "Europe/Berlin"), pa.timestamp("ns", "UTC")],
    pa.duration("us"): [pa.duration("s"), pa.duration("ns")],
    pa.bool_(): [pa.null()],
}
OTHERS = [*TAKEN, *(one for some in TAKEN.values() for one in some), pa.date32(), pa.time64("us"), pa.decimal128(9, 2)]
VALUES = st.one_of(
    st.none(), st.integers(-(2**64), 2**64), st.integers(-(2**25), 2**25), st.integers(0, 1).map(lambda n: 2**53 + n)
)


def nested(type_: pa.DataType) -> pa.DataType:
    """Within whatever may be nested."""
    return pa.struct([("a", pa.list_(pa.struct([("b", pa.map_(pa.string(), type_))])))])


@pytest.mark.parametrize("wanted", TAKEN, ids=str)
def test_a_type_is_taken_if_it_loses_nothing_and_else_refused(wanted):
    """Without a look at values, at any depth; so that no row stops others, and a column of nulls is as any other."""
    for given_ in OTHERS:
        for deep in (lambda one: one, nested):
            if given_ == wanted or given_ in TAKEN[wanted] or pa.types.is_null(given_):
                assert cast(pa.nulls(3, deep(given_)), deep(wanted), "x")[0].type == deep(wanted)
                continue
            with raises("EOS_REGISTRY_SCHEMA.type") as caught:
                cast(pa.nulls(0, deep(given_)), deep(wanted), "x")
            assert caught.value.parameters["column"] == ("x" if deep is not nested else "x.a[].b{}")


@pytest.mark.parametrize(
    "wrong", [pa.list_view(pa.int64()), pa.map_(pa.int64(), pa.int64()), pa.struct([("x", pa.int8())])]
)
def test_a_nested_type_is_no_other_one(wrong):
    """Views of lists, which Arrow casts to other lists, among them; and a struct with a name twice."""
    for wanted in (pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64()), pa.int64()):
        with pytest.raises(EosError):
            cast(pa.nulls(1, wrong), wanted, "x")
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(EosError):
        cast(twice, pa.struct([("a", pa.int32())]), "x")
    with pytest.raises(EosError):
        writer_of(Schema("PROTOBUF", 'syntax = "proto3"; message M { int64 a = 1; }')).encode(twice, b"")


def of_type(values: list[int | None], type_: pa.DataType) -> list[int | None]:
    """Those that the type holds exactly."""
    kept = []
    for value in values:
        try:
            kept.append(None if pa.scalar(value, type_).as_py() != value else value)
        except (pa.ArrowInvalid, OverflowError):
            kept.append(None)
    return kept


@given(st.lists(VALUES, max_size=9), st.sampled_from(INTEGERS), st.integers(0, 3), st.data())
def test_numbers_that_a_type_does_not_hold_are_bad_alone(values, type_, skipped, data):
    """As they are counted in Python, at any depth and in a slice: all others keep their values."""
    wanted = data.draw(st.sampled_from([pa.int32(), pa.int64(), pa.decimal128(20, 0), pa.float32(), pa.float64()]))
    values = of_type(values, type_)
    bits = {pa.int32(): 31, pa.int64(): 63, pa.decimal128(20, 0): 66, pa.float32(): 24, pa.float64(): 53}[wanted]
    most = 2**bits if pa.types.is_floating(wanted) else 2**bits - 1
    least = -most - (wanted in (pa.int32(), pa.int64()))
    bad = [place for place, value in enumerate(values[skipped:]) if value is not None and not least <= value <= most]
    for wrap, deep in ((lambda one: one, lambda one: one), (lambda one: {"a": [{"b": [("k", one)]}, None]}, nested)):
        rows = pa.array([wrap(value) for value in values], deep(type_)).slice(skipped)
        found, places = cast(rows, deep(wanted), "x")
        assert places == bad and found.type == deep(wanted)
        expected = [None if place in bad else wrap(value) for place, value in enumerate(values[skipped:])]
        assert found.to_pylist() == expected
