"""Datums worked out by hand from the specification, each with its value."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from spark_eos.pipelines.registry.avro import Decoder, parse
from tests.support.judges.avro import record

SCALED = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
WIDE = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
FIXED_DECIMAL = {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 1}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
#: Schema, the datum in hexadecimal digits, and its value; `test_values` draws all others.
VECTORS: list[tuple[object, str, object]] = [
    # Zigzag: 0, -1, 1, -2, … in this order; seven bits a byte, the lowest first.
    ("int", "ac02", 150),
    ("int", "feffffff0f", 2**31 - 1),
    ("int", "ffffffff0f", -(2**31)),
    ("long", "80808080808001", 2**41),
    ("long", "8080808080808001", 2**48),
    ("long", "808080808080808001", 2**55),
    ("long", "feffffffffffffffff01", 2**63 - 1),
    ("long", "ffffffffffffffffff01", -(2**63)),
    # Blocks of items until one of 0; of a negative count, with the bytes of the block.
    ({"type": "array", "items": "long"}, "0304063600", [3, 27]),
    ({"type": "array", "items": "long"}, "02060304360200", [3, 27, 1]),
    ({"type": "map", "values": "int"}, "010602610200", [("a", 1)]),
    # Unscaled, two's complement, the highest byte first.
    (SCALED, "0600ff80", Decimal("654.08")),
    (SCALED, "12" + "ff" * 9, Decimal("-0.01")),
    (WIDE, "14" + "01" + "00" * 9, Decimal(2**72)),
    (WIDE, "14" + "ff" + "00" * 9, Decimal(-(2**72))),
    (WIDE, "26" + "00" * 3 + "4b3b4ca85a86c47a098a223fffffffff", Decimal(10**38 - 1)),
    (FIXED_DECIMAL, "ff" * 19 + "85", Decimal("-12.3")),
]


def schema_of(tree: object):
    """A record of a long and a value of the type."""
    return parse(json.dumps(record(("id", "long"), ("value", tree))))


@pytest.mark.parametrize(("tree", "datum", "value"), VECTORS)
def test_a_datum_has_its_value(tree, datum, value):
    """Alone and as a field of a record, among others."""
    alone = parse(json.dumps(tree))
    found = Decoder(alone, alone).decode(pa.array([bytes.fromhex(datum), None], pa.binary()))
    assert (found.rows.to_pylist(), found.bad) == ([value, None], {})
    inside = schema_of(tree)
    data = [bytes.fromhex(f"{number}{datum}") for number in ("00", "02", "8001")]
    found = Decoder(inside, inside).decode(pa.array(data, pa.large_binary()))
    assert (found.rows.to_pylist(), found.bad) == ([{"id": n, "value": value} for n in (0, 1, 64)], {})


#: Schema, a datum that is none, and a part of the reason.
MALFORMED: list[tuple[object, str, str]] = [
    ("boolean", "02", "neither 0 nor 1"),
    ("boolean", "", "too early"),
    ("boolean", "0100", "left behind"),
    ("int", "8080808010", "32 bits"),
    ("int", "8180808010", "32 bits"),
    ("int", "80", "too early"),
    ("int", "8000", "more bytes than it needs"),
    ("long", "80808080808080808000", "more bytes than it needs"),
    ("long", "80808080808080808002", "64 bits"),
    ("long", "8080808080808080808001", "64 bits"),
    ("long", "808080808080808080808080808001", "64 bits"),
    ("double", "00000000000000", "too early"),
    ("float", "000000", "too early"),
    ("bytes", "0661", "a size"),
    ("bytes", "01", "a size"),
    ("bytes", "feffffffffffffffff01", "a size"),
    ("bytes", "ffffffffffffffffff01", "a size"),
    ("string", "02ff", "UTF-8"),
    ("string", "06eda080", "UTF-8"),
    ("string", "04c080", "UTF-8"),
    ("string", "02e2", "UTF-8"),
    ({"type": "fixed", "name": "F", "size": 2}, "ca", "too early"),
    (ENUM, "06", "no symbol"),
    (ENUM, "01", "no symbol"),
    (["null", "string"], "04", "no branch"),
    (["null", "string"], "01", "no branch"),
    ({"type": "array", "items": "long"}, "", "too early"),
    ({"type": "array", "items": "long"}, "0206", "too early"),
    ({"type": "array", "items": "long"}, "0806", "more items than"),
    ({"type": "array", "items": "long"}, "040680", "too early"),
    ({"type": "array", "items": "long"}, "feffffffffffffffff0102", "more items than"),
    ({"type": "array", "items": "long"}, "ffffffffffffffffff01020200", "more items than"),
    ({"type": "array", "items": "long"}, "0302063600", "where it says"),
    ({"type": "array", "items": "long"}, "0306063600", "where it says"),
    ({"type": "array", "items": "long"}, "0320063600", "claims a size"),
    ({"type": "array", "items": "long"}, "0301063600", "claims a size"),
    ({"type": "map", "values": "int"}, "0402610202610200", "key twice"),
    ({"type": "map", "values": "int"}, "0402ff0202610400", "UTF-8"),
    (SCALED, "00", "no bytes"),
    (SCALED, "060186a0", "5 digits"),
    (SCALED, "06fe7960", "5 digits"),
    (SCALED, "22" + "01" + "00" * 16, "5 digits"),
    (WIDE, "20" + "4b3b4ca85a86c47a098a224000000000", "38 digits"),
    ({"type": "int", "logicalType": "time-millis"}, "80f0b252", "a time of day"),
    ({"type": "int", "logicalType": "time-millis"}, "01", "a time of day"),
    ({"type": "long", "logicalType": "timestamp-millis"}, "feffffffffffffffff01", "64 bits"),
    ({"type": "string", "logicalType": "uuid"}, "0261", "not a uuid"),
]


@pytest.mark.parametrize(("tree", "datum", "reason"), MALFORMED)
def test_a_malformed_datum_is_bad_and_touches_no_other(tree, datum, reason):
    """In a record, between two good ones, of which the next begins where it ends."""
    union = isinstance(tree, list)
    schema = schema_of(tree if union else ["null", tree])
    good, bad = bytes.fromhex("0200"), bytes.fromhex(f"04{'' if union else '02'}{datum}")
    found = Decoder(schema, schema).decode(pa.array([good, bad, good], pa.binary()))
    assert found.rows.to_pylist() == [{"id": 1, "value": None}, None, {"id": 1, "value": None}]
    assert list(found.bad) == [1] and reason in found.bad[1]


def test_a_value_that_ends_before_its_datum_begins_is_bad():
    """As one of three bytes, where five are to be left out; one of exactly five has an empty datum."""
    schema = schema_of("null")
    values = pa.array([b"12345\2", b"123", None, b"12345", b"\2"], pa.binary())
    found = Decoder(schema, schema).decode(values, begin=np.array([5, 5, 5, 5, 0]))
    good = {"id": 1, "value": None}
    assert found.rows.to_pylist() == [good, None, None, None, good]
    assert found.bad == {1: "the value ends before the datum begins", 3: "R.id: the datum ends too early"}
    assert Decoder(schema, schema).decode(values[2:3], begin=5).rows.to_pylist() == [None]


def test_a_record_without_bytes_is_a_row():
    """Whose only field is null, or that has none; a byte is one too many."""
    for tree, value in ((record(), {}), (record(("a", "null")), {"a": None})):
        schema = parse(json.dumps(tree))
        found = Decoder(schema, schema).decode(pa.array([b"", b"\0", None, b""], pa.binary()))
        assert found.rows.to_pylist() == [value, None, None, value]
        assert found.bad == {1: "bytes are left behind the datum"}
