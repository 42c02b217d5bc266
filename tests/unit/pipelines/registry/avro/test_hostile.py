"""Datums made to cost much: their time and memory are bounded by their bytes."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_eos.pipelines.registry.avro import DecodedValues, Decoder, parse
from spark_eos.pipelines.registry.avro.schema import MOST_LEVELS
from tests.support.judges.avro import record, varint

#: Seconds of processor time for a datum of up to a megabyte. One whose time grows with the square of its bytes takes
#: minutes.
MOST_S = 8.0
MANY = 200_000
STRINGS = {"type": "array", "items": "string"}
RECORD = record(("a", "string"), ("b", "int"))


def decoded(tree: Any, *data: bytes) -> DecodedValues:
    """The values, in bounded time."""
    schema = parse(json.dumps(tree))
    decoder, column = Decoder(schema, schema), pa.array(data, pa.binary())
    begin = time.process_time()
    found = decoder.decode(column)
    assert time.process_time() - begin < MOST_S
    found.rows.validate(full=True)
    return found


@pytest.mark.parametrize(
    ("tree", "item"),
    [
        ("string", b"\0"),
        ("int", b"\2"),
        ("boolean", b"\1"),
        (["null", "int"], b"\0"),
        (STRINGS, b"\0"),
        ({"type": "map", "values": "int"}, b"\0"),
        (RECORD, b"\0\2"),
    ],
)
def test_long_arrays_of_small_items(tree, item):
    """In one block, and in as many blocks as items, with a size and without: all are right, and read in time."""
    array = {"type": "array", "items": tree}
    one = varint(MANY) + MANY * item + b"\0"
    blocks = MANY // 4 * (b"\2" + item) + MANY // 4 * (b"\1" + varint(len(item)) + item) + b"\0"
    found = decoded(array, one, blocks)
    assert found.bad == {}
    assert [len(row) for row in found.rows] == [MANY, MANY // 2]


def test_long_maps():
    """Different keys are read; one key again and again is refused."""
    keys = [f"{n:06}" for n in range(MANY // 2)]
    pairs = b"".join(b"\14" + key.encode() + b"\2" for key in keys)
    found = decoded({"type": "map", "values": "int"}, varint(len(keys)) + pairs + b"\0")
    assert found.bad == {} and len(found.rows[0]) == len(keys)
    found = decoded({"type": "map", "values": "int"}, varint(MANY) + MANY * b"\2a\2" + b"\0")
    assert list(found.bad) == [0] and "twice" in found.bad[0]


def test_what_is_only_claimed_takes_no_memory():
    """Numbers of items and sizes beyond the bytes that there are, in all places where a datum has one."""
    huge = [varint(n) for n in (2**20, 2**31, 2**40, 2**62, 2**63 - 1, -(2**40), -(2**63))]
    trees = "string", "bytes", STRINGS, {"type": "array", "items": "double"}, {"type": "map", "values": "int"}
    tracemalloc.start()
    try:
        for tree in trees:
            found = decoded(tree, *(one + rest for one in huge for rest in (b"", b"\2", b"\2" + huge[1] + b"\0")))
            assert len(found.bad) == len(found.rows)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_arrays_within_arrays_to_the_last_level():
    """Each with one item, and the innermost with many; a datum that ends on the way is bad."""
    tree: Any = "int"
    for _ in range(MOST_LEVELS - 1):
        tree = {"type": "array", "items": tree}
    good = (MOST_LEVELS - 2) * b"\2" + varint(MANY // 4) + MANY // 4 * b"\2" + (MOST_LEVELS - 1) * b"\0"
    found = decoded(tree, good, good[:-1], (MOST_LEVELS - 1) * b"\2", b"\0")
    assert list(found.bad) == [1, 2]
    value = found.rows[0].values
    for _ in range(MOST_LEVELS - 2):
        value = value.flatten()
    assert len(value) == MANY // 4


def test_a_long_array_beside_many_short_ones():
    """The long one does not make rounds in which the others take part."""
    tree = {"type": "array", "items": RECORD}
    short = b"\2\2x\2\0"
    long = varint(MANY) + MANY * b"\2x\2" + b"\0"
    found = decoded(tree, *([short] * 4000 + [long] + [short] * 4000))
    assert found.bad == {} and len(found.rows[4000]) == MANY


@pytest.mark.parametrize("long", [varint(12_000) + 12_000 * b"\0", 12_000 * b"\2\0"], ids=["items", "blocks"])
def test_some_long_arrays_beside_very_many_empty_ones(long):
    """In none of their rounds, or blocks, anything is done for the empty ones."""
    found = decoded({"type": "array", "items": STRINGS}, varint(1_000_033) + 33 * (long + b"\0") + 1_000_001 * b"\0")
    assert found.bad == {} and len(found.rows[0].values.flatten()) == 33 * 12_000


def test_decimals_and_numbers_of_many_bytes():
    """A decimal may have signs before its digits, however many; a number is at most ten bytes."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 38}
    signs = varint(MANY) + (MANY - 1) * b"\xff"
    found = decoded(decimal, signs + b"\xfe", varint(MANY) + b"\xfe" + (MANY - 1) * b"\xff", MANY * b"\x80")
    assert found.rows.to_pylist()[0] == -2 and list(found.bad) == [1, 2]
    found = decoded("long", MANY * b"\x80" + b"\1", MANY * b"\x80")
    assert list(found.bad) == [0, 1]


@pytest.mark.parametrize("tree", ["string", RECORD, STRINGS, {"type": "map", "values": ["null", "double"]}])
def test_columns_of_noise(tree):
    """Every row bad, or good by chance, each with its own reason."""
    chance = np.random.default_rng(7)
    data = [b"\20" + chance.bytes(8) if tree == "string" else chance.bytes(40) for _ in range(20_000)]
    found = decoded(tree, *data)
    assert len(found.bad) > 10_000
    assert set(found.bad) == set(np.flatnonzero(found.rows.is_null().to_numpy(zero_copy_only=False)).tolist())


def test_columns_of_more_bytes_than_are_decoded_together():
    """In parts, between which nothing is lost; a bad row has its own number."""
    rows = [bytes([2 * (n % 60)]) + varint(1_000_000) + bytes(1_000_000) for n in range(40)]
    rows[33] = b"\2"
    found = decoded(record(("n", "int"), ("b", "bytes")), *rows)
    assert list(found.bad) == [33]
    assert found.rows.field("n").to_pylist()[:33] == list(range(33)) and len(found.rows[39]["b"].as_py()) == 1_000_000
