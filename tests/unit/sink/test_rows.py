"""Arrow rows on their way into a producer: arguments, digests, refusals."""

from __future__ import annotations

import datetime
import random
import string
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_eos.protocol.head import DIGEST_BITS, Digest
from spark_eos.sink.rows import RowBatch, check_partitions, check_topic_names
from spark_eos.sink.schema import Columns
from tests.support.judges.conditions import raises

#: What `RowBatch` digests by.
BY = [by for by in Digest if by is not Digest.BATCHES]

TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
FULL = {
    "key": b"k",
    "value": b"v",
    "topic": "t1",
    "partition": 3,
    "headers": [{"key": "h", "value": b"x"}],
    "timestamp": datetime.datetime(2024, 5, 6, 7, 8, 9, 123_456, tzinfo=datetime.UTC),
}
#: What the name of a topic consists of (Kafka's Topic.LEGAL_CHARS).
LEGAL = set(string.ascii_letters + string.digits + "._-")
FULL_MS = 1_714_979_289_123
VALUE_AND_HEADERS = Columns(key=False, topic=False, partition=False, headers=True, timestamp=False)
KEY_AND_VALUE = Columns(key=True, topic=False, partition=False, headers=False, timestamp=False)


def batch(rows: list[Mapping[str, Any]], topic: str | None = None, **types: pa.DataType) -> RowBatch:
    """The rows as the sink gets them; columns are those of the first row."""
    names = list(rows[0])
    data = pa.RecordBatch.from_pydict(
        {name: pa.array([row[name] for row in rows], types.get(name, TYPES[name])) for name in names}
    )
    optional = {name: name in names for name in ("key", "partition", "headers", "timestamp")}
    return RowBatch(data, Columns(topic=topic is None, **optional), topic)


def digest(*rows: Mapping[str, Any], by: Digest = Digest.ROWS, **options: Any) -> int:
    return batch(list(rows), **options).digest(by)


def taken(rows: RowBatch) -> list[tuple[str, dict[str, list[Any]]]]:
    """Each topic with its rows' columns, as the producer takes them."""
    return [
        (topic, {name: column.to_pylist() for name, column in columns.items()}) for topic, columns in rows.by_topic()
    ]


#: One header, h: its count, and the sizes of its key and value in zigzag before them.
HEADERS = b"\x02\x02h"
SENT = {"value": b"v", "key": b"k", "time_ms": FULL_MS, "partition": 3, "headers": HEADERS + b"\x02x"}


NULLS = dict.fromkeys(FULL) | {"topic": "t1"}


@pytest.mark.parametrize(
    ("row", "sent"),
    [
        (FULL, SENT),
        *(
            ({"value": b"v", "topic": "t1", column: FULL[column]}, {"value": b"v", name: SENT[name]})
            for column, name in (("partition", "partition"), ("timestamp", "time_ms"), ("headers", "headers"))
        ),
        (NULLS, dict.fromkeys(SENT) | {"headers": b"\0"}),
        (FULL | {"headers": [{"key": "h", "value": None}]}, SENT | {"headers": HEADERS + b"\x01"}),
    ],
)
def test_columns_reach_the_producer(row, sent):
    """Timestamps in milliseconds; headers as they stand in a record. Nulls are what they are in Kafka: a tombstone, no
    key, a partition that Kafka chooses, now, no headers, and a header without a value."""
    assert taken(batch([row])) == [("t1", {name: [value] for name, value in sent.items()})]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_goes_as_utf_8(kind):
    """Whichever of its types Arrow uses."""
    value = "größe" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else "größe".encode()
    ((_, columns),) = taken(batch([{"key": value, "value": value}], "t", key=kind, value=kind))
    assert columns == {"key": ["größe".encode()], "value": ["größe".encode()]}


def test_rows_of_each_topic_keep_their_order():
    """None is lost, and none is doubled."""
    rows = [{"value": b"%d" % i, "topic": topic} for i, topic in enumerate("abacab")]
    found = {topic: columns["value"] for topic, columns in taken(batch(rows))}
    assert found == {"a": [b"0", b"2", b"4"], "b": [b"1", b"5"], "c": [b"3"]}


def test_a_null_topic_is_refused_before_any_row_is_taken():
    """With the number of such rows."""
    with raises("EOS_ROW_INVALID", "2 of 3 rows"):
        batch([{"value": b"a", "topic": topic} for topic in (None, "t", None)])


def texts(*values: bytes) -> pa.StringArray:
    """Texts as Spark hands them over: any bytes, as a cast from binary checks nothing."""
    return pa.array(values, pa.binary()).view(pa.string())


@given(
    st.lists(
        st.one_of(st.binary(max_size=300), st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True).map(str.encode))
    )
)
def test_names_that_no_topic_can_have_are_refused_by_name(names):
    """Empty, not UTF-8, too long, or with other letters: what a broker would not create. All others come back as they
    are."""
    rows = pa.RecordBatch.from_arrays([pa.array([b"v"] * len(names)), texts(*names)], ["value", "topic"])
    columns = Columns(key=False, topic=True, partition=False, headers=False, timestamp=False)
    allowed = [
        1 <= len(name) <= 249 and name not in (b".", b"..") and set(name.decode("latin-1")) <= LEGAL for name in names
    ]
    if all(allowed):
        found = RowBatch(rows, columns, None).topics
        check_topic_names(found)
        assert found == [name.decode() for name in names]
        return
    with raises("EOS_ROW_INVALID") as caught:
        check_topic_names(RowBatch(rows, columns, None).topics)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("as_dictionary", [False, True])
@pytest.mark.parametrize("headers", [[None], [{"key": None, "value": b"x"}]])
def test_a_header_without_a_name_is_refused(headers, as_dictionary):
    """Kafka knows none. The lists of all rows may be a dictionary."""
    lists = pa.array([headers], TYPES["headers"])
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), lists) if as_dictionary else lists
    with raises("EOS_ROW_INVALID", "header"):
        RowBatch(pa.record_batch({"value": [b"v"], "headers": column}), VALUE_AND_HEADERS, "t")


@given(st.lists(st.one_of(st.binary(max_size=9), st.text(max_size=9).map(str.encode))))
def test_a_header_whose_name_is_not_utf_8_is_refused(keys):
    """Readers would not get the bytes that were written."""
    pair = pa.StructArray.from_arrays([texts(*keys), pa.array([b"x"] * len(keys))], ["key", "value"])
    headers = pa.ListArray.from_arrays([0, len(keys)], pair)
    rows = pa.RecordBatch.from_arrays([pa.array([b"v"]), headers], ["value", "headers"])
    if all(is_utf_8(key) for key in keys):
        (found,) = RowBatch(rows, VALUE_AND_HEADERS, "t").headers_column.to_pylist()
        assert [header["key"].encode() for header in found] == keys
        return
    with raises("EOS_ROW_INVALID", "not UTF-8") as caught:
        RowBatch(rows, VALUE_AND_HEADERS, "t")
    assert str(caught.value).isprintable()


def is_utf_8(text: bytes) -> bool:
    """By Python's own decoder."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(("partition", "fits"), [(0, True), (3, True), (4, False), (-1, False), (None, True)])
@pytest.mark.parametrize("topic", ["t1", None])
def test_partitions_must_exist(topic, partition, fits):
    """By option and by column; with the topic's number of partitions in the error."""
    rows = batch([FULL, FULL | {"partition": partition}], topic)
    counts = {"t1": 4, "t2": 9}
    if fits:
        check_partitions(rows, counts)
        return
    with raises("EOS_ROW_INVALID", f"partition {partition} of topic t1, which has 4"):
        check_partitions(rows, counts)


def test_partitions_are_those_of_each_rows_own_topic():
    """The wider topic does not excuse the narrower one."""
    wide, narrow = FULL | {"topic": "wide", "partition": 8}, FULL | {"topic": "narrow", "partition": 2}
    check_partitions(batch([wide, narrow]), {"wide": 9, "narrow": 3})
    with raises("EOS_ROW_INVALID", "partition 2 of topic narrow, which has 2"):
        check_partitions(batch([wide, narrow]), {"wide": 9, "narrow": 2})


def test_the_earliest_timestamp_is_told():
    """Retention goes by it; null stands for now."""
    rows = [FULL, FULL | {"timestamp": FULL["timestamp"] - datetime.timedelta(days=1)}, FULL | {"timestamp": None}]
    assert batch(rows).oldest_ms == FULL_MS - 86_400_000
    assert batch(rows[2:]).oldest_ms is None
    assert batch([{"value": b"v"}], "t").oldest_ms is None


def test_the_earliest_timestamp_of_each_topic_is_told():
    """As topics keep rows for different times; rows without one, or from before 1970, have no age."""
    before, none = FULL["timestamp"] - datetime.timedelta(days=1), {"timestamp": None}
    undated = {"timestamp": datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC)}
    rows = [FULL, FULL | {"timestamp": before}, FULL | none, FULL | undated, FULL | {"topic": "t2"}]
    assert batch(rows).oldest_by_topic() == {"t1": FULL_MS - 86_400_000, "t2": FULL_MS}
    assert batch([FULL | none, FULL | undated | {"topic": "t2"}]).oldest_by_topic() == {}
    alone = [{name: row[name] for name in ("value", "timestamp")} for row in rows]
    assert batch(alone, "t").oldest_by_topic() == {"t": FULL_MS - 86_400_000}
    assert batch([{"value": b"v"}], "t").oldest_by_topic() == {}


# Digests

header = st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.none() | st.binary(max_size=2)})
cells = {
    "key": st.none() | st.binary(max_size=4),
    "value": st.none() | st.binary(max_size=4),
    "topic": st.sampled_from(["t1", "t2", "größe"]),
    "partition": st.none() | st.integers(0, 5),
    "headers": st.none() | st.lists(header, max_size=3),
    "timestamp": st.none() | st.datetimes(datetime.datetime(2000, 1, 1), timezones=st.just(datetime.UTC)),
}
rows_of_any_kind = st.fixed_dictionaries(cells)


def added(*digests: int) -> int:
    return sum(digests) % (1 << DIGEST_BITS)


@given(rows=st.lists(rows_of_any_kind, min_size=1, max_size=20), chance=st.randoms(use_true_random=False))
def test_a_digest_does_not_depend_on_order_or_batches(rows, chance: random.Random):
    """A replay after a shuffle has the same rows in another order, cut into other batches."""
    shuffled = chance.sample(rows, len(rows))
    cut = chance.randrange(len(rows))
    parts = [part for part in (shuffled[:cut], shuffled[cut:]) if part]
    assert added(*(digest(*part) for part in parts)) == digest(*rows)


@pytest.mark.parametrize("by", BY)
@given(row=rows_of_any_kind, data=st.data())
def test_a_digest_tells_a_change_in_each_column(by, row, data):
    """Nothing that a reader sees may change unnoticed."""
    name = data.draw(st.sampled_from(sorted(cells)))
    other = data.draw(cells[name], name)
    assume(other != row[name])
    assert digest(row, by=by) != digest(row | {name: other}, by=by), name


@pytest.mark.parametrize("by", BY)
@given(before=st.lists(rows_of_any_kind, max_size=5), rows=st.lists(rows_of_any_kind, min_size=1, max_size=9))
def test_a_digest_of_a_slice_is_that_of_its_rows(by, before, rows):
    """Whatever lies before them in the same memory, as in a chunk that was cut."""
    names = list(cells)
    data = pa.RecordBatch.from_pydict(
        {name: pa.array([row[name] for row in before + rows], TYPES[name]) for name in names}
    )
    columns = Columns(key=True, topic=True, partition=True, headers=True, timestamp=True)
    assert RowBatch(data.slice(len(before)), columns, None).digest(by) == digest(*rows, by=by)


@pytest.mark.parametrize("by", BY)
@given(rows=st.lists(rows_of_any_kind, min_size=1, max_size=5))
def test_a_digest_tells_a_row_more(by, rows):
    """Lost or doubled."""
    assert digest(*rows, by=by) != digest(*rows, rows[0], by=by)


SWAPS = 2_000


def test_a_digest_tells_values_that_change_places():
    """Values of equal length, between keys: a sum of CRCs misses one such swap in some thousands."""
    chance = random.Random(51)  # among whose pairs are two that a sum of CRCs would miss
    keys, values = list[bytes](), list[bytes]()
    for _ in range(SWAPS):
        keys += [chance.randbytes(2) for _ in range(2)]
        values += [chance.randbytes(2) for _ in range(2)]
    swapped = [values[at ^ 1] for at in range(2 * SWAPS)]
    plain, other = (pa.record_batch({"key": keys, "value": column}) for column in (values, swapped))
    for at in range(0, 2 * SWAPS, 2):
        if keys[at] != keys[at + 1] and values[at] != values[at + 1]:
            one, two = (RowBatch(rows.slice(at, 2), KEY_AND_VALUE, "t") for rows in (plain, other))
            assert all(one.digest(by) != two.digest(by) for by in BY)


RECORDED = [
    {"key": b"k%d" % i, "value": b"v" * i, "topic": "größe", "partition": i, "timestamp": when, "headers": headers}
    for i, (when, headers) in enumerate(
        [
            (datetime.datetime(1969, 5, 6, 7, 8, 9, 123_456, tzinfo=datetime.UTC), []),
            (datetime.datetime(2024, 5, 6, tzinfo=datetime.UTC), [{"key": "h", "value": b"x"}]),
        ]
    )
] + [dict.fromkeys(cells) | {"topic": "t"}]


@pytest.mark.parametrize(
    ("by", "full", "plain"),
    [
        (Digest.ROWS, 9_749_581_175_619_423_019, 8_622_989_416_681_307_541),
        (Digest.CHUNKS, 10_460_787_513_435_908_540, 7_424_862_916_098_633_289),
    ],
)
def test_a_digest_never_changes(by, full, plain):
    """What the ledger holds was made by an earlier version, and is compared with what this one makes."""
    assert digest(*RECORDED, by=by) == full
    assert digest({"value": b"v"}, {"value": None}, {"value": b""}, by=by, topic="t") == plain


def test_a_digest_takes_large_fields_as_small_ones():
    """A large field is looked at where it lies, unless it is among many small ones; in a slice as well."""
    large = [{"key": b"x" * 900, "value": b"y" * 5000}, {"key": None, "value": b"z" * 9000}]
    large += [{"key": b"k", "value": None}]
    small = [{"key": b"k%d" % i, "value": b"v"} for i in range(1000)]
    together = digest(*large, *small, topic="t")
    assert together == added(digest(*large, topic="t"), digest(*small, topic="t"))
    key, value = (pa.array([row[name] for row in [*small, *large]], pa.binary()) for name in ("key", "value"))
    slices = [pa.record_batch({"key": key, "value": value}).slice(*part) for part in ((0, 1000), (1000, 3))]
    assert added(*(RowBatch(part, KEY_AND_VALUE, "t").digest(Digest.ROWS) for part in slices)) == together


PAIRS = ((b"ab", b"c"), (b"a", b"bc"), (b"", b"abc"), (b"abc", b""), (b"bc", b"a"))
ALIKE = {
    "a tombstone": [FULL | {"value": value} for value in (None, b"", b"\0", b"null", b"None", b"\0null")],
    "no partition": [FULL | {"partition": partition} for partition in (None, -1, 0)],
    "no headers": [FULL | {"headers": headers} for headers in (None, [])],
    "where the key ends": [{"key": key, "value": value, "topic": "t"} for key, value in PAIRS],
    "which column is null": [
        NULLS | {"value": b"v"} | given for given in ({}, {"key": b""}, {"partition": 0}, {"key": b"", "partition": 0})
    ],
}


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("of", ALIKE)
def test_a_digest_tells_rows_apart_that_look_alike(of, by):
    """By what their fields could be taken for."""
    assert len({digest(row, by=by) for row in ALIKE[of]}) == len(ALIKE[of])


@pytest.mark.parametrize("by", BY)
def test_a_digest_does_not_tell_how_a_row_was_given(by):
    """Its topic by option or by column, and a column of nulls, which a reader does not tell from none: a restart may
    change from one to the other."""
    plain = {"key": b"k", "value": b"v"}
    assert digest(plain, by=by, topic="t1") == digest(plain | {"topic": "t1"}, by=by)
    assert digest(plain, by=by, topic="t1") != digest(plain, by=by, topic="t2")
    if by is Digest.CHUNKS:
        nothing = {"partition": None, "headers": None, "timestamp": None}
        assert digest(plain | nothing, by=by, topic="t1") == digest(plain, by=by, topic="t1")


def of_chunk(rows: pa.RecordBatch, first: int = 0) -> int:
    return RowBatch(rows, KEY_AND_VALUE, "t", first + np.arange(rows.num_rows, dtype=np.uint64)).digest(Digest.CHUNKS)


@given(rows=st.lists(rows_of_any_kind, min_size=2, max_size=9), data=st.data())
def test_a_digest_of_a_chunk_tells_rows_that_change_places(rows, data):
    """Other than sums over rows: in a chunk, their order is the source's."""
    one, two = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=2, max_size=2, unique=True))
    swapped = list(rows)
    swapped[one], swapped[two] = rows[two], rows[one]
    same = swapped == rows
    assert (digest(*rows, by=Digest.CHUNKS) == digest(*swapped, by=Digest.CHUNKS)) is same


@given(st.lists(st.tuples(cells["key"], cells["value"]), min_size=1, max_size=9), st.integers(0, 3), st.integers(0, 3))
def test_a_digest_of_a_chunk_is_of_what_is_in_it(pairs, before, behind):
    """Not of how Arrow holds it: in a slice, in large columns, with bytes beneath a null."""
    key, value = (list(column) for column in zip(*pairs, strict=True))
    plain = pa.record_batch({"key": pa.array(key, pa.binary()), "value": pa.array(value, pa.binary())})
    expected = of_chunk(plain)
    around = {name: [b"x"] * before + column + [b"y"] * behind for name, column in (("key", key), ("value", value))}
    for type_ in (pa.binary(), pa.large_binary()):
        arrays = {name: pa.array(column, type_) for name, column in around.items()}
        assert of_chunk(pa.record_batch(arrays).slice(before, len(pairs))) == expected
    there = pa.array([field is not None for field in value])
    filled = pa.array([b"beneath" if field is None else field for field in value], pa.binary())
    beneath = pa.Array.from_buffers(pa.binary(), len(value), [there.buffers()[1], *filled.buffers()[1:]])
    assert beneath.to_pylist() == value
    assert of_chunk(pa.record_batch({"key": plain["key"], "value": beneath})) == expected


def test_a_digest_of_a_chunk_is_of_its_place():
    """The same rows from elsewhere are other rows."""
    rows = pa.record_batch({"key": pa.array([b"k"]), "value": pa.array([b"v"])})
    assert len({of_chunk(rows, first) for first in (0, 1, 1 << 24)}) == 3


@pytest.mark.parametrize("indices", [[0, 0, 0], [1, 0, 2], [2, None, 0]])
def test_headers_may_be_a_dictionary_of_lists(indices) -> None:
    """They are encoded and digested as those of each row."""
    kind = TYPES["headers"]
    lists = pa.array(
        [[{"key": "a", "value": b"1"}, {"key": "b", "value": None}], [], [{"key": "ü", "value": b""}]], kind
    )
    values = pa.array([b"v"] * len(indices), pa.binary())
    plain = pa.array([None if index is None else lists[index].as_py() for index in indices], kind)
    short = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), lists)
    one, other = (
        RowBatch(pa.RecordBatch.from_arrays([values, headers], ["value", "headers"]), VALUE_AND_HEADERS, "t")
        for headers in (plain, short)
    )
    assert one.encoded_headers == other.encoded_headers
    assert [one.digest(by) for by in BY] == [other.digest(by) for by in BY]
