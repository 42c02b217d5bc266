"""Answers as values: what is read, and that it stays so."""

from __future__ import annotations

import struct
from typing import Annotated

import pytest

from spark_eos.kafka.net.schema import (
    INT16,
    FieldReader,
    FixedString,
    Int16,
    Int32,
    NullableString,
    Record,
    Some,
    String,
    Tagged,
    text,
)


class Partition(Record):
    """Only numbers, and an array of numbers."""

    number: Int32
    error: Int16
    replicas: tuple[Int32, ...]


class Topic(Record):
    """Records in a record, and a tagged field."""

    name: String
    message: NullableString
    partitions: Some[Partition]
    level: Annotated[int | None, Tagged(3, INT16)]


class Newer(Partition):
    """A later version, with one more field."""

    leader: Int32


class Old(Record, flexible=False):
    """Of a version without tagged fields."""

    name: FixedString
    numbers: tuple[Int16, ...]


PARTITION = struct.pack(">ih", 4, 9) + b"\x03" + struct.pack(">ii", 1, 2) + b"\x00"


def test_an_answer_is_read_field_by_field():
    """Null texts, arrays and tags among them."""
    data = text("töpic") + b"\x00\x02" + PARTITION + b"\x01\x03\x02\x00\x07"
    fields = FieldReader(data)
    topic = Topic.read(fields)
    assert topic == Topic(
        name="töpic", message=None, partitions=(Partition(number=4, error=9, replicas=(1, 2)),), level=7
    )
    assert fields.left == 0


def test_a_tagged_field_that_is_not_there_is_none():
    """And tags that nobody asked for are passed over."""
    data = text("t") + text("m") + b"\x02" + PARTITION + b"\x01\x09\x01\xff"
    assert Topic.read(FieldReader(data)).level is None


def test_an_array_that_is_never_empty():
    """A broker that says nothing about what was asked for has not answered."""
    with pytest.raises(IndexError):
        Topic.read(FieldReader(text("t") + b"\x00\x01\x00"))


def test_a_later_version_has_the_fields_of_the_one_before_first():
    """As they are on the wire."""
    data = struct.pack(">ih", 4, 9) + b"\x01" + struct.pack(">i", 5) + b"\x00"
    assert Newer.read(FieldReader(data)) == Newer(number=4, error=9, replicas=(), leader=5)
    assert Partition.read(FieldReader(PARTITION)).replicas == (1, 2)


def test_an_answer_of_an_old_version():
    """Other lengths, and no tags."""
    data = struct.pack(">h", 1) + b"n" + struct.pack(">ihh", 2, 5, 6)
    assert Old.read(FieldReader(data)) == Old(name="n", numbers=(5, 6))


def test_an_answer_cannot_be_changed():
    """It is a value: equal and hashed by its fields, in whatever order they were given."""
    one = Partition(number=4, error=9, replicas=())
    with pytest.raises(AttributeError):
        one.number = 5
    with pytest.raises(AttributeError):
        del one.number
    assert one == Partition(replicas=(), error=9, number=4) != Partition(number=4, error=0, replicas=())
    assert {one: 1}[Partition(replicas=(), error=9, number=4)]


@pytest.mark.parametrize("values", [{"number": 4}, {"number": 4, "error": 9, "replicas": (), "leader": 1}])
def test_an_answer_has_all_of_its_fields_and_no_others(values):
    """A test that makes one is held to what brokers send."""
    with pytest.raises(TypeError, match="replicas"):
        Partition(**values)
