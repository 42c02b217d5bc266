"""Which schema each value was written with: all of a column at once, as one by one."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.common.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.pipelines.registry import wire
from spark_eos.pipelines.registry.wire import WriterKey, split
from spark_eos.source.schema import ARROW_HEADERS

GUID = "89791762-2336-4186-9674-299b90a802e2"
OTHER = "00000000-2336-4186-9674-299b90a802e2"
indexes = st.one_of(st.just([0]), st.lists(st.integers(0, 2**20), min_size=1, max_size=16))


def by_confluent(value: bytes, kind: str) -> tuple[WriterKey, int] | None:
    """The key and the number of bytes before the value, by Confluent's own reader; None where that refuses it."""
    found, stream = SchemaId(kind), io.BytesIO(value)
    try:
        found.from_bytes(stream)
    except Exception:
        return None
    return WriterKey(found.id, "", tuple(found.message_indexes or ())), stream.tell()


def keys_of(found: wire.Split) -> list[WriterKey | None]:
    return [None if number < 0 else found.keys[number] for number in found.writer.tolist()]


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), indexes, st.binary(max_size=8)), max_size=20), st.integers(0, 3))
def test_ids_and_indexes_are_those_that_confluent_wrote(rows, skipped):
    """Protobuf: ids of all 32 bits, nested messages, values of no bytes; also in a slice of a column."""
    values = [SchemaId("PROTOBUF", id_, None, message).id_to_bytes() + value for id_, message, value in rows]
    for type_ in (pa.binary(), pa.large_binary()):
        found = split(pa.array(values, type_).slice(skipped), messages=True)
        expected = [(WriterKey(id_, "", tuple(message)), value) for id_, message, value in rows][skipped:]
        rest = [value[begin:] for value, begin in zip(values[skipped:], found.begin.tolist(), strict=True)]
        assert list(zip(keys_of(found), rest, strict=True)) == expected
        assert found.bad == {}


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12), st.binary(max_size=9).map(b"\0".__add__)), max_size=20))
def test_what_confluent_refuses_is_bad_and_nothing_else(values):
    """Any bytes, without message indexes: bad where Confluent's reader fails, and null stays null."""
    found = split(pa.array(values, pa.binary()))
    for row, value in enumerate(values):
        expected = None if value is None else by_confluent(value, "AVRO")
        assert keys_of(found)[row] == (expected and expected[0])
        assert (row in found.bad) == (value is not None and expected is None)
        assert expected is None or found.begin[row] == expected[1]


@given(st.lists(st.binary(max_size=12).map(b"\0\0\0\0\7".__add__), max_size=10))
def test_indexes_that_are_taken_are_those_of_confluent(values):
    """Any bytes where message indexes belong: what is not bad is read as Confluent reads it."""
    found = split(pa.array(values, pa.binary()), messages=True)
    for row, value in enumerate(values):
        if row not in found.bad:
            assert (found.keys[found.writer[row]], found.begin[row]) == by_confluent(value, "PROTOBUF")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", wire.TOO_SHORT),
        (b"\0\0\0\1", wire.TOO_SHORT),
        (b"\1\0\0\0\1x", wire.NO_MAGIC),
        (b"{json}", wire.NO_MAGIC),
        (b"\0\0\0\0\7", wire.BAD_INDEXES),
        (b"\0\0\0\0\7\x01", wire.BAD_INDEXES),  # a negative count
        (b"\0\0\0\0\7\x02\x01", wire.BAD_INDEXES),  # a negative index
        (b"\0\0\0\0\7\x04\x02", wire.BAD_INDEXES),  # two, and one is there
        (b"\0\0\0\0\7" + b"\xff" * 12, wire.BAD_INDEXES),
        (b"\0\0\0\0\7\x7e" + b"\0" * 100, wire.BAD_INDEXES),  # 63 messages in one another
    ],
)
def test_a_value_that_is_not_in_the_format_has_a_reason(value, reason):
    """And its neighbours keep their places."""
    good = wire.prefix(7, [0])
    found = split(pa.array([good, value, good, None], pa.binary()), messages=True)
    assert found.bad == {1: reason}
    assert keys_of(found) == [WriterKey(7, "", (0,)), None, WriterKey(7, "", (0,)), None]


@given(st.integers(0, 2**32 - 1), indexes)
def test_the_bytes_before_a_value_are_those_of_confluent(id_, message):
    """With message indexes and without."""
    assert wire.prefix(id_) == SchemaId("AVRO", id_).id_to_bytes()
    assert wire.prefix(id_, message) == SchemaId("PROTOBUF", id_, None, message).id_to_bytes()


def test_a_header_goes_before_the_bytes_of_the_value():
    """The last one of its name, as in Java: a program that passes headers on adds its own behind them. Without one, or
    with null headers, the value's own bytes count; a tombstone is one."""
    guid, prefixed_ = SchemaId("AVRO", None, GUID).guid_to_bytes(), wire.prefix(7) + b"x"
    rows = [
        (b"x", [("other", b"1"), (wire.VALUE_HEADER, b"?"), (wire.VALUE_HEADER, guid), (wire.VALUE_HEADER, None)]),
        (prefixed_, [(wire.KEY_HEADER, guid)]),
        (prefixed_, None),
        (prefixed_, []),
        (None, [(wire.VALUE_HEADER, guid)]),
        (b"x", [(wire.VALUE_HEADER, guid[:9])]),
        (b"x", [(wire.VALUE_HEADER, wire.prefix(9))]),
        (prefixed_, [(wire.VALUE_HEADER, None)]),
        (b"x", [(wire.VALUE_HEADER, guid), (wire.VALUE_HEADER, SchemaId("AVRO", None, OTHER).guid_to_bytes())]),
    ]
    lists = [None if pairs is None else [{"key": k, "value": v} for k, v in pairs] for _, pairs in rows]
    values, headers = pa.array([value for value, _ in rows], pa.binary()), pa.array(lists, ARROW_HEADERS.type)
    for skipped in range(len(rows)):
        found = split(values.slice(skipped), headers.slice(skipped))
        by_guid, by_id = WriterKey(-1, GUID), WriterKey(7)
        expected = [by_guid, by_id, by_id, by_id, None, None, WriterKey(9), by_id, WriterKey(-1, OTHER)]
        assert keys_of(found) == expected[skipped:]
        assert found.begin.tolist() == [0, 5, 5, 5, 0, 0, 0, 5, 0][skipped:]
        assert found.bad == {row - skipped: wire.BAD_HEADER for row in [5] if row >= skipped}
    found = split(values.slice(1, 1), headers.slice(1, 1), key=True)
    assert keys_of(found) == [WriterKey(-1, GUID)]
