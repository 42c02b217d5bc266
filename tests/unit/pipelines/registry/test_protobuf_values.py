"""Protobuf by columns: the values of the official runtime, damaged ones alone bad, and types that are proven."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from decimal import Decimal
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import example
from hypothesis import strategies as st

from spark_eos.errors import EosError
from spark_eos.pipelines.registry.protobuf_files import message_at
from spark_eos.pipelines.registry.protobuf_values import ProtobufReader, ProtobufWriter
from spark_eos.pipelines.registry.schemas import Reference, Schema
from tests.support.judges.conditions import raises
from tests.support.judges.equality import same
from tests.support.runs.input_counts import inputs

MONEY = Schema("PROTOBUF", 'syntax = "proto3"; package acme; message Money { int64 units = 1; uint64 nanos = 2; }')
ORDER = Schema(
    "PROTOBUF",
    """
    syntax = "proto3";
    package acme;
    import "google/protobuf/timestamp.proto";
    import "acme/money.proto";
    enum Color { RED = 0; GREEN = 1; }
    message Order {
      int64 id = 1;
      string name = 2;
      double size = 3;
      repeated int32 lines = 4;
      map<string, uint32> tags = 5;
      Item first = 6;
      optional int32 maybe = 7;
      google.protobuf.Timestamp at = 8;
      Color color = 9;
      oneof way { string road = 10; sint32 rail = 11; }
      uint64 large = 12;
      bytes raw = 13;
      repeated Item all = 14;
      Money price = 15;
      bool paid = 16;
      float ratio = 17;
      fixed32 fixed = 18;
      map<int32, Item> named = 19;
      message Item { string what = 1; repeated string notes = 2; }
    }
    message Other { int64 id = 1; }
    """,
    (Reference("acme/money.proto", "money", 1, MONEY),),
)
Order = GetMessageClass(message_at(ORDER, (0,)))
LEAST, MOST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)

items = st.fixed_dictionaries({"what": st.text(max_size=3), "notes": st.lists(st.text(max_size=3), max_size=2)})
small = st.integers(-(2**31), 2**31 - 1)
orders = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.text(max_size=5),
        "size": st.floats(),
        "lines": st.lists(small, max_size=3),
        "tags": st.dictionaries(st.text(max_size=2), st.integers(0, 2**32 - 1), max_size=1),
        "first": items,
        "maybe": small,
        "at": st.datetimes(LEAST, MOST),
        "color": st.sampled_from(["RED", "GREEN"]),
        "road": st.text(max_size=3),
        "large": st.integers(0, 2**64 - 1),
        "raw": st.binary(max_size=4),
        "all": st.lists(items, max_size=2),
        "price": st.fixed_dictionaries({"units": small, "nanos": st.integers(0, 2**64 - 1)}),
        "paid": st.booleans(),
        "ratio": st.floats(width=32),
        "fixed": st.integers(0, 2**32 - 1),
        "named": st.dictionaries(small, items, max_size=1),
    },
)


def message(fields) -> bytes:
    """By the official runtime."""
    return Order(**fields).SerializeToString()


def row_of(found) -> dict[str, object]:
    """A message of the official runtime as a row of ours."""
    row = {}
    for field in found.DESCRIPTOR.fields:
        value, inner = getattr(found, field.name), field.message_type
        if field.has_presence and not found.HasField(field.name):
            row[field.name] = None
        elif inner is not None and inner.GetOptions().map_entry:
            row[field.name] = {key: value_of(value[key], inner.fields_by_name["value"]) for key in value}
        else:
            row[field.name] = [value_of(one, field) for one in value] if field.is_repeated else value_of(value, field)
    return row


def value_of(value, field) -> object:
    """A value of the official runtime as ours."""
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return names[value].name if value in names else str(value)
    match field.message_type and field.message_type.full_name:
        case "google.protobuf.Timestamp":
            return value.ToDatetime(dt.UTC)
        case "google.protobuf.Duration":
            return value.ToTimedelta()
        case None:
            return Decimal(value) if field.type == field.TYPE_UINT64 else value
        case str(name) if name.endswith("Value"):
            return value.value
    return row_of(value)


#: Each schema's reader and writer are made once: that takes longer than a value.
reader, writer = cache(ProtobufReader), cache(ProtobufWriter)


def decoded(values, schema=ORDER, written=ORDER, path=(0,)):
    prefixed = pa.array([b"\0\0\0\0\1\0" + value for value in values], pa.binary())
    return reader(schema).of_writer(written, path)(prefixed, np.full(len(values), 6))


def rows_of(found) -> list[dict[str, object] | None]:
    return found.rows.to_pylist(maps_as_pydicts="strict")


@inputs(st.lists(orders, min_size=1, max_size=8), each=3)
def test_values_are_those_of_the_official_runtime(rows):
    """All types, fields without a value, nested and repeated messages."""
    values = [message(row) for row in rows]
    found = decoded(values)
    assert found.bad == {}
    assert same(rows_of(found), [row_of(Order.FromString(value)) for value in values])


def maps_set_aside(message) -> set[str]:
    """The maps of which the runtime in Python, other than those in Java and Go, keeps an entry as an unknown field: one
    with a field that is neither key nor value."""
    unknown = {field.field_number for field in UnknownFieldSet(message) if field.wire_type == 2}
    return {field.name for field in message.DESCRIPTOR.fields if field.is_repeated and field.number in unknown}


mutations = st.tuples(st.integers(0, 2**32), st.integers(0, 255), st.integers(0, 2**32))


def mutated(value: bytes, place: int, byte: int, end: int) -> bytes:
    """With another byte at this place, and cut."""
    text = bytearray(value)
    if text:
        text[place % len(text)] = byte
    return bytes(text[: end % (len(text) + 1)])


@inputs(orders, st.lists(mutations, min_size=2, max_size=6), each=4)
@example({"at": dt.datetime(2026, 1, 1)}, [(0, 66, 9)])
@example({"tags": {"": 1}}, [(2, 0x1A, 6)])
@example({"id": 1, "at": dt.datetime(2026, 1, 1, microsecond=1)}, [(11, 0xFF, 14)])
def test_a_mutated_value_is_read_as_by_the_official_runtime_or_bad(row, changes):
    """And its neighbours are what they were."""
    good, values = message({"id": 7}), [mutated(message(row), *change) for change in changes]
    found = decoded([good, *values, good])
    first, *rows, last = rows_of(found)
    assert first == last == row_of(Order.FromString(good))
    assert found.bad.keys() == {place for place, own in enumerate(rows, 1) if own is None}
    for value, own in zip(values, rows, strict=True):
        try:
            official = Order.FromString(value)
            expected = row_of(official)
        except (DecodeError, ValueError, OverflowError):  # the last two: times that are out of range
            assert own is None
            continue
        if own is not None:
            own = {name: part for name, part in own.items() if name not in maps_set_aside(official)}
            assert same(own, {name: expected[name] for name in own})


def test_a_value_that_makes_the_library_panic_is_bad_alone(capfd):
    """An entry with a key and no value in a map of messages, which no known encoder writes."""
    values = [message({"id": 1}), b"\x9a\x01\x02\x08\x01", message({"id": 3})]
    found = decoded(values)
    assert found.bad.keys() == {1}
    assert [row and row["id"] for row in found.rows.to_pylist()] == [1, None, 3]
    assert "panicked" in capfd.readouterr().err


KNOWN = Schema(
    "PROTOBUF",
    """syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
    import "google/protobuf/duration.proto";
    message M {
      google.protobuf.Timestamp at = 1; google.protobuf.Int64Value number = 20; In inner = 3; repeated In list = 4;
      map<int32, In> map = 5; map<int32, google.protobuf.Duration> times = 6;
      repeated google.protobuf.Timestamp all = 7;
      oneof o { google.protobuf.StringValue text = 8; int32 id = 9; }
      oneof p { int32 a = 11; string b = 12; }
      map<string, int32> own = 13;
      message In {
        google.protobuf.Duration for = 2; Deep deep = 3; oneof p { int32 a = 11; string b = 12; }
        map<string, int32> own = 13; repeated int32 numbers = 14;
      }
      message Deep { google.protobuf.BoolValue yes = 100; string what = 1; }
    }""",
)


@pytest.mark.parametrize("before", [[], [b"\xa2\x06\xe0\xa7\x12"]])
def test_a_value_of_many_levels_is_bad_alone(before):
    """Groups of no known field within one another, which the library follows until the stack ends; also where a field
    without its 300,000 bytes comes before them."""
    values = [message({"id": 1}), *before, b"\x7b" * 300_000, message({"id": 3})]
    found = decoded(values)
    assert found.bad.keys() == set(range(1, len(values) - 1))
    assert [row and row["id"] for row in found.rows.to_pylist()] == [1, *([None] * len(found.bad)), 3]


def field(number: int, *values: bytes) -> bytes:
    """A field of wire type 2, once for each value, by its tag of one byte or two."""
    tag = number << 3 | 2
    tags = bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
    return b"".join(tags + bytes([len(value)]) + value for value in values)


FIVE, HALF = b"\x08\x05", b"\x10\x80\xca\xb5\xee\x01"  # 5 seconds, and half of one
ONE, OTHER = b"\x58\x01", field(12, b"x")  # of a oneof
ENTRY, ENTRY_B = field(13, b"\x0a\x01a\x10\x01"), field(13, b"\x0a\x01b\x10\x02")
KEYS = [b"\x08\x01", b"\x08\x02"]
LONG_TAG = b"\xf8\xff\xff\xff\x1f\x01"  # of more than 32 bits
#: Fields of M and of In, and whether the library reads them in another way than the official runtime.
ANYWHERE = [
    (ONE + OTHER, True),
    (ONE, False),
    (OTHER, False),
    (ENTRY + ENTRY, True),
    (ENTRY + ENTRY_B, False),
    (LONG_TAG, True),
    (b"\xf8\xff\xff\xff\x0f\x01", False),
    (b"\x9b\x01\x0c", True),  # an unknown group that ends as another one
]
AROUND = [
    lambda text: text,
    lambda text: field(3, text),
    lambda text: field(4, b"", text),
    lambda text: field(5, KEYS[0] + field(2, text)),
]
#: Messages that the library knows, and of which it keeps the last one instead of merging them; and what it merges.
TWICE = [
    (field(1, FIVE, HALF), True),
    (field(1, FIVE + HALF), False),
    (field(1, FIVE) + b"\x48\x01" + field(1, FIVE), True),
    (field(1, b"", b""), True),
    (field(20, FIVE, b""), True),
    (field(20, FIVE) + field(1, FIVE), False),
    (field(3, field(2, FIVE, HALF)), True),
    (field(3, field(2, FIVE), field(2, HALF)), True),
    (field(3, field(2, FIVE), field(3, b"")), False),
    (field(4, field(2, FIVE), field(2, HALF)), False),
    (field(4, field(2, FIVE), field(2, HALF, FIVE)), True),
    (field(4, field(3, field(100, FIVE), field(100, b""))), True),
    (field(5, *(key + field(2, field(2, FIVE)) for key in KEYS)), False),
    (field(5, KEYS[0] + field(2, field(2, FIVE, FIVE))), True),
    (field(6, *(key + field(2, FIVE) for key in KEYS)), False),
    (field(6, KEYS[0] + field(2, FIVE, HALF)), True),
    (field(7, FIVE, HALF), False),
    (field(8, field(1, b"a"), field(1, b"b")), True),
    (field(3, field(3, LONG_TAG)), True),
    (field(3, field(14, b"\1") + ONE, field(14, b"\2") + field(3, field(1, b"x")) + b"\x58\x02"), False),
]


def test_a_value_that_the_library_reads_in_another_way_is_bad_alone():
    """As it keeps all of a oneof's values and of a map's entries with one key, at any depth, of messages that it knows
    the last one, and skips what is no tag. Every other value is read as by the official runtime."""
    given = [(around(text), is_bad) for around in AROUND for text, is_bad in ANYWHERE] + TWICE
    found = decoded([value for value, _ in given], KNOWN, KNOWN)
    assert found.bad == {n: "it is not a message of Protobuf" for n, (_, is_bad) in enumerate(given) if is_bad}
    official = GetMessageClass(message_at(KNOWN, (0,)))
    expected = [None if is_bad else row_of(official.FromString(value)) for value, is_bad in given]
    assert same(rows_of(found), expected)


#: Seconds and nanoseconds, and whether these are a Timestamp and a Duration.
TIMES = [
    (0, 999_999_999, True, True),
    (0, 1_000_000_000, False, False),
    (0, -1, False, True),
    (1, -1, False, False),
    (-1, 1, True, False),
    (-1, -999_999_999, False, True),
    (-1, -1_000_000_000, False, False),
    (253_402_300_799, 999_999_999, True, True),
    (253_402_300_800, 0, False, True),
    (-62_135_596_800, 0, True, True),
    (-62_135_596_801, 0, False, True),
    (315_576_000_000, 999_999_999, False, True),
    (315_576_000_001, 0, False, False),
    (-(2**63), 0, False, False),
    (2**62, 0, False, False),
]


def test_times_out_of_range_are_bad_alone():
    """As the official runtime refuses them; wherever they are."""
    given = []
    for seconds, nanos, timestamp, duration in TIMES:
        for kind, good in ((Timestamp, timestamp), (Duration, duration)):
            with contextlib.nullcontext() if good else pytest.raises(ValueError):
                kind(seconds=seconds, nanos=nanos).ToJsonString()
        text = Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
        given += [(field(1, text), timestamp), (field(7, b"", text), timestamp), (field(3, field(2, text)), duration)]
        given += [(field(4, b"", field(2, text)), duration), (field(6, KEYS[0] + field(2, text)), duration)]
        given += [(field(5, KEYS[0] + field(2, field(2, text))), duration)]
    found = decoded([value for value, _ in given], KNOWN, KNOWN)
    assert found.bad.keys() == {place for place, (_, good) in enumerate(given) if not good}


REQUIRED = Schema(
    "PROTOBUF",
    """syntax = "proto2"; import "google/protobuf/timestamp.proto";
    message M { required int32 id = 1; optional In one = 2; repeated In list = 3; map<int32, In> map = 4;
      required google.protobuf.Timestamp at = 5; oneof o { In way = 6; int32 other = 7; }
      message In { required string what = 1; optional Deep deep = 2; message Deep { required bool yes = 1; } } }""",
)
Required = GetMessageClass(message_at(REQUIRED, (0,)))
deeps = st.fixed_dictionaries({}, optional={"yes": st.booleans()})
ins = st.fixed_dictionaries({}, optional={"what": st.text(max_size=2), "deep": deeps})
whole_ins = st.fixed_dictionaries({"what": st.text(max_size=2)}, optional={"deep": st.just({"yes": True})})


@inputs(st.sampled_from([ins, whole_ins]), st.data(), each=4)
def test_a_message_that_lacks_a_required_field_is_malformed(parts, data):
    """At any depth, as to programs in Java and C++; so is a row of which it would be written."""
    fields = st.fixed_dictionaries(
        {"id": st.integers(0, 9), "at": st.just({"seconds": 5})},
        optional={
            "one": parts,
            "list": st.lists(parts, max_size=2),
            "map": st.dictionaries(st.integers(0, 2), parts, max_size=1),
            "way": parts,
        },
    )
    rows = data.draw(st.lists(fields, min_size=1, max_size=9))
    for row in rows:
        if data.draw(st.integers(0, 5)) == 0:
            del row[data.draw(st.sampled_from(["id", "at"]))]
    messages = [Required(**row) for row in rows]
    values = [each.SerializePartialToString() for each in messages]
    missing = {n: each.FindInitializationErrors()[0] for n, each in enumerate(messages) if not each.IsInitialized()}
    found = decoded(values, REQUIRED, REQUIRED)
    assert found.bad == {n: f"it lacks the required field '{field}'" for n, field in missing.items()}
    expected = [None if n in missing else row_of(each) for n, each in enumerate(messages)]
    assert same(rows_of(found), expected)
    type_ = reader(REQUIRED).type
    written = writer(REQUIRED).encode(pa.array([row_of(each) for each in messages], type_), b"")
    assert written.bad.keys() == missing.keys()
    again = [value and row_of(Required.FromString(value)) for value in written.values.to_pylist()]
    assert same(again, expected)


def proto(fields: str, name: str = "Order") -> Schema:
    return Schema("PROTOBUF", f'syntax = "proto3"; package acme; message {name} {{ {fields} }}')


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("string id = 1;", "int64 id = 1;"),
        ("int64 id = 1;", "sint64 id = 1;"),
        ("int64 id = 1;", "int32 id = 1;"),
        ("int32 id = 1;", "repeated int32 id = 1;"),
        ("bytes id = 1;", "string id = 1;"),
        ("message A { string a = 1; } A id = 1;", "message A { int32 a = 1; } A id = 1;"),
        ("map<string, string> id = 1;", "map<string, int32> id = 1;"),
    ],
)
def test_a_field_of_another_type_is_refused(written, read):
    """Protobuf itself would read it as a field that is not there, or as another value."""
    with raises("EOS_REGISTRY_SCHEMA.other", "Field id"):
        ProtobufReader(proto(read)).of_writer(proto(written), (0,))


@pytest.mark.parametrize(
    ("written", "read", "value", "expected"),
    [
        ("int32 id = 1;", "int64 id = 1;", {"id": -5}, {"id": -5}),
        ("sint32 id = 1;", "sint64 id = 1;", {"id": -5}, {"id": -5}),
        ("string id = 1;", "bytes id = 1;", {"id": "ä"}, {"id": "ä".encode()}),
        ("int64 id = 1;", "int64 number = 1; string more = 2;", {"id": 5}, {"number": 5, "more": ""}),
        ("int64 id = 1; string more = 2;", "int64 id = 1;", {"id": 5, "more": "x"}, {"id": 5}),
        ("repeated int32 id = 1 [packed = false];", "repeated int32 id = 1;", {"id": [5, 6]}, {"id": [5, 6]}),
    ],
)
def test_a_schema_may_evolve(written, read, value, expected):
    """By Protobuf's rules, as far as no value changes: wider numbers, other names, fields that come and go."""
    text = GetMessageClass(message_at(proto(written), (0,)))(**value).SerializeToString()
    assert decoded([text], proto(read), proto(written)).rows.to_pylist() == [expected]


NESTED = (
    "message A { message In { message Deep { int32 x = 1; } } map<string, int32> m = 1; message B {} message C {} }"
)


def test_the_indexes_say_which_message_it_is():
    """Another one is refused, even if its fields would fit; and so are indexes that lead nowhere."""
    other = ProtobufReader(ORDER, "acme.Other")
    assert other.of_writer(ORDER, (1,)) is not None
    wrong = {(0,): "other_message", (0, 0): "other_message", (0, 7): "no_message", (7,): "no_message"}
    for path, entry in wrong.items():
        with raises(f"EOS_REGISTRY_SCHEMA.{entry}"):
            other.of_writer(ORDER, path)


@pytest.mark.parametrize(
    ("path", "name"),
    [((0, 0), "In"), ((0, 0, 0), "In.Deep"), ((0, 3), "C"), ((0, 1), "B"), ((0, 2), None)],
)
def test_indexes_that_clients_count_differently_are_refused(path, name):
    """With the entry of the map: In, entry, B, C; without it: In, B, C. The entry itself is no message of a value."""
    schema = Schema("PROTOBUF", f'syntax = "proto3"; {NESTED}')
    if name is not None:
        assert message_at(schema, path).full_name == f"A.{name}"
        return
    with raises("EOS_REGISTRY_SCHEMA.ambiguous") as caught:
        message_at(schema, path)
    assert caught.value.parameters["messages"] in ("A.B or A.C", "A.C or A.B")


@pytest.mark.parametrize(
    ("schema", "entry"),
    [
        (proto("Order id = 1;"), "recursive"),
        (proto("message A { Order a = 1; } A id = 1;"), "recursive"),
        (
            Schema("PROTOBUF", 'syntax = "proto2"; message M { optional group G = 1 { optional int32 x = 1; } }'),
            "group",
        ),
        (proto("int32 from = 1; int32 From = 2;"), "by_columns"),
        (Schema("PROTOBUF", 'edition = "2023"; message M { int32 a = 1; }'), "by_columns"),
        (Schema("PROTOBUF", 'syntax = "proto3";'), "no_message"),
    ],
)
def test_a_schema_that_no_column_can_hold_is_refused(schema, entry):
    """Recursive messages, and what the compiler does not take."""
    with raises(f"EOS_REGISTRY_SCHEMA.{entry}"):
        ProtobufReader(schema)


@pytest.mark.parametrize("name", ["Date", "TimeOfDay"])
def test_dates_that_may_be_partial_are_refused(name):
    """They would become other ones: a year alone its first of January, 24:00 midnight before. By another name, they are
    read as what they are."""
    text = f"message {name} {{ int32 year = 1; int32 month = 2; int32 day = 3; }}"
    used = Schema("PROTOBUF", f'syntax = "proto3"; package google.type; {text}')
    for use in ("T a = 1;", "map<int32, T> a = 1;", "message In { repeated T a = 1; } In i = 1;"):
        body = f'syntax = "proto3"; import "a.proto"; message M {{ {use.replace("T", f"google.type.{name}")} }}'
        for one in (ProtobufReader, ProtobufWriter):
            with raises("EOS_REGISTRY_SCHEMA.partial", f"is the Protobuf message google.type.{name}"):
                one(Schema("PROTOBUF", body, (Reference("a.proto", "a", 1, used),)))
    own = proto(f"{text} {name} a = 1;")
    rows = decoded([b"\x0a\x03\x08\xe8\x0f"], own, own).rows.to_pylist()
    assert rows == [{"a": {"year": 2024, "month": 0, "day": 0}}]
    assert ProtobufReader(used).type.get_field_index("year") == 0


@inputs(st.lists(st.none() | orders, min_size=1, max_size=8), each=3)
def test_rows_are_written_as_the_official_runtime_reads_them(rows):
    """What is read of a message is written as one that means the same; a null row stays null."""
    # -0.0 has a test of its own.
    rows = [row and {k: v + 0.0 if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    values = [None if row is None else message(row) for row in rows]
    expected = [None if value is None else row_of(Order.FromString(value)) for value in values]
    found = writer(ORDER).encode(pa.array(expected, reader(ORDER).type), b"\0\0\0\0\1\0")
    assert found.bad == {}
    written = found.values.to_pylist()
    assert [value is None for value in written] == [row is None for row in rows]
    assert same([value and row_of(Order.FromString(value[6:])) for value in written], expected)


def test_a_writer_knows_its_place():
    """Name and indexes, also of a message in another one."""
    assert (ProtobufWriter(ORDER).record, ProtobufWriter(ORDER).message) == ("acme.Order", (0,))
    assert ProtobufWriter(ORDER, "acme.Other").message == (1,)
    with pytest.raises(EosError, match=r"no message acme\.None.*acme\.Order, acme\.Other"):
        ProtobufWriter(ORDER, "acme.None")
    nested = ProtobufWriter(Schema("PROTOBUF", f'syntax = "proto3"; {NESTED}'), "A.In.Deep")
    assert (nested.record, nested.message) == ("A.In.Deep", (0, 0, 0))
    with pytest.raises(EosError, match=r"indexes of acme\.Order\.Item are those of different messages"):
        ProtobufWriter(ORDER, "acme.Order.Item")


def test_a_message_without_fields_is_written():
    """As no bytes, in a batch of no rows, too."""
    writer = ProtobufWriter(Schema("PROTOBUF", 'syntax = "proto3"; message M {}'))
    for rows, values in (([{}, None], [b"x", None]), ([], [])):
        assert writer.encode(pa.array(rows, pa.struct([])), b"x").values == pa.array(values, pa.binary())


def test_a_row_that_a_message_cannot_hold_is_bad():
    """A null where a field has no presence, an enum value that it does not have; fields without a column are unset."""
    rows = pa.array([{"id": 1, "color": "RED"}, {"id": None, "color": "RED"}, {"id": 2, "color": "BLUE"}])
    found = ProtobufWriter(ORDER).encode(rows, b"")
    assert found.bad.keys() == {1, 2} and "'id'" in found.bad[1] and "'color'" in found.bad[2]
    assert found.values.to_pylist() == [b"\x08\x01", None, None]


@pytest.mark.parametrize(
    ("field", "type_", "good", "wrong", "what"),
    [
        ("large", pa.decimal128(20, 0), 2**64 - 1, -1, "a number out of its range"),
        ("large", pa.int64(), 1, -1, "a number out of its range"),
        ("fixed", pa.int64(), 2**32 - 1, 2**32, "a number out of its range"),
        ("maybe", pa.int64(), 2**31 - 1, 2**31, "a number out of its range"),
        ("size", pa.int64(), 2**53, 2**53 + 1, "a number out of its range"),
        ("lines", pa.list_(pa.int64()), [1, 2], [1, 2**31], "a number out of its range"),
        ("tags", pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", -1)], "a number out of its range"),
        ("at", pa.timestamp("us", "UTC"), 0, -62_135_596_800_000_001, "a time out of its range"),
    ],
)
def test_a_row_that_is_out_of_a_fields_range_is_bad_alone(field, type_, good, wrong, what):
    """Its neighbours are written."""
    values = pa.array([good, wrong, None, good], pa.int64() if field == "at" else type_)
    values = values.view(type_) if field == "at" else values
    found = ProtobufWriter(ORDER).encode(pa.StructArray.from_arrays([values], [field]), b"")
    assert found.bad[1] == f"field '{field}' has {what}" and not {0, 3} & found.bad.keys()
    assert found.values.to_pylist()[1] is None and found.values[0] == found.values[3] != b""


@pytest.mark.parametrize("number", ["double", "float"])
def test_a_negative_zero_is_written_or_its_row_is_bad(number):
    """The official runtime writes it; the library leaves it out where there is no presence, and it was read as 0.0."""
    fields = f"""{number} own = 1; optional {number} maybe = 2;
    repeated {number} list = 3; map<int32, {number}> map = 4;
    message In {{ {number} own = 1; optional {number} maybe = 2; }} In inner = 5; repeated In all = 6;
    map<int32, In> named = 7; oneof o {{ {number} one = 8; int32 other = 9; }}"""
    empty = {"own": 0.0, "list": [], "map": [], "all": [], "named": []}
    bad = (
        {"own": -0.0},
        {"map": [(1, -0.0)]},
        {"inner": {"own": -0.0}},
        {"all": [{"own": 1.0}, {"own": -0.0}]},
        {"named": [(1, {"own": -0.0})]},
    )
    good = (
        {"maybe": -0.0, "list": [-0.0, math.nan], "map": [(1, 0.0)], "one": -0.0},
        {"inner": {"own": 0.0, "maybe": -0.0}, "own": math.nan},
        {"own": 1.0},
        {},
    )
    type_ = ProtobufReader(proto(fields)).type
    for row in bad:
        rows = pa.array([empty, empty | row, empty | good[0]], type_)
        for skipped in (0, 1):
            found = ProtobufWriter(proto(fields)).encode(rows.slice(skipped), b"")
            assert found.bad.keys() == {1 - skipped} and "-0.0" in found.bad[1 - skipped]
    rows = pa.array([empty | row for row in good], type_)
    found = ProtobufWriter(proto(fields)).encode(rows, b"")
    assert found.bad == {}
    assert repr(decoded(found.values.to_pylist(), proto(fields), proto(fields)).rows.to_pylist()) == repr(
        rows.to_pylist()
    )


ONEOFS = Schema(
    "PROTOBUF",
    """syntax = "proto3"; message M { oneof o { int32 a = 1; string b = 2; N c = 3; } N inner = 4; repeated N list = 5;
    map<int32, N> map = 6; message N { oneof p { int32 a = 1; google.protobuf.Timestamp b = 2; } } }
    import "google/protobuf/timestamp.proto";""",
)
few = st.none() | st.integers(1, 3)
inners = st.none() | st.fixed_dictionaries(
    {"a": few, "b": few.map(lambda n: n and dt.datetime.fromtimestamp(n, dt.UTC))}
)
some_inners = inners.filter(lambda one: one is not None)


@inputs(
    st.lists(
        st.fixed_dictionaries(
            {"a": few, "b": few.map(lambda n: n and str(n)), "c": inners, "inner": inners}
            | {"list": st.lists(some_inners, max_size=2)}
            | {"map": st.dictionaries(st.integers(1, 3), some_inners, max_size=2).map(lambda one: list(one.items()))}
        ),
        max_size=6,
    ),
    st.integers(0, 2),
    each=3,
)
@example([{"a": 1, "b": "x", "c": None, "inner": None, "list": [], "map": []}], 0)
def test_a_row_with_several_fields_of_a_oneof_is_bad(rows, skipped):
    """At any depth: of two, readers would keep the last one. Every other row is read as it was."""
    found = writer(ONEOFS).encode(pa.array(rows, reader(ONEOFS).type).slice(skipped), b"")
    rows = rows[skipped:]

    def several(message) -> bool:
        return message is not None and len([1 for name in ("a", "b", "c") if message.get(name) is not None]) > 1

    within = [[row, row["c"], row["inner"], *row["list"], *(one for _, one in row["map"])] for row in rows]
    assert found.bad.keys() == {place for place, messages in enumerate(within) if any(map(several, messages))}
    kept = [value for value in found.values if value.is_valid]
    again = reader(ONEOFS).of_writer(ONEOFS, (0,))(pa.array(kept, pa.binary()), np.zeros(len(kept), np.int64))
    assert again.bad == {}
    assert again.rows.to_pylist() == [row for place, row in enumerate(rows) if place not in found.bad]
