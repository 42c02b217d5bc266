"""How records are cut into chunks for a transform, and what is made of its result."""

from __future__ import annotations

import logging
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import RowError, SchemaError
from spark_eos.pipelines.copy.plan import Function, Transform
from spark_eos.pipelines.copy.sql import SqlTransform
from spark_eos.pipelines.copy.testing import check_transform
from spark_eos.pipelines.copy.transforming import (
    Chunk,
    as_batch,
    as_sink_rows,
    checked,
    chunks,
    columns_of,
    digest_at,
    letters_of,
    transformed,
    without_rejected,
)
from spark_eos.source.schema import arrow_schema
from tests.support.judges.conditions import raises

EMPTY = pa.RecordBatch.from_pylist([], schema=arrow_schema(False))


def records(*offsets: int, size: int = 1) -> pa.RecordBatch:
    rows = [{"topic": "t", "partition": 0, "offset": offset, "value": b"v" * size} for offset in offsets]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(False))


def cut(batches: list[pa.RecordBatch], **limits: int) -> list[list[int]]:
    return [chunk.rows.column("offset").to_pylist() for chunk in chunks(batches, **limits)]


@given(st.lists(st.integers(0, 60), unique=True).map(sorted), st.lists(st.integers(0, 60)), st.integers(1, 9))
def test_chunks_do_not_depend_on_how_records_came(offsets, cuts, multiple):
    """They are those between multiples of a number, with gaps or without."""
    bounds = sorted({0, len(offsets), *(c for c in cuts if c <= len(offsets))})
    came = [records(*offsets[a:b]) for a, b in pairwise(bounds)]
    wanted: dict[int, list[int]] = {}
    for offset in offsets:
        wanted.setdefault(offset // multiple, []).append(offset)
    assert cut([c for c in came if c.num_rows], offsets=multiple) == list(wanted.values())


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.integers(0, 30), st.integers(1, 40))
def test_large_records_make_smaller_chunks_wherever_they_came_apart(sizes, at, most):
    """A chunk holds as many records as fit, and at least one."""
    rows = [records(i, size=size) for i, size in enumerate(sizes)]
    together = pa.concat_batches(rows)
    at = min(at, len(sizes))
    found = cut(rows, most_bytes=most)
    assert found == cut([together], most_bytes=most)
    assert found == cut([b for b in (together.slice(0, at), together.slice(at)) if b.num_rows], most_bytes=most)
    assert [offset for chunk in found for offset in chunk] == list(range(len(sizes)))
    for chunk in found:
        assert len(chunk) == 1 or sum(sizes[offset] for offset in chunk) <= most


def test_places_tell_rows_apart_by_partition_offset_and_order():
    """Two rows that change places, in one chunk or between two partitions, have other digests."""
    ranges = [OffsetRange("t", 0, 0, 9), OffsetRange("t", 1, 0, 9), OffsetRange("u", 0, 0, 9)]
    found = [
        place for r in ranges for first in (0, 1, 8192) for place in Chunk(EMPTY, first).row_numbers(r, 100).tolist()
    ]
    assert len(set(found)) == len(found)
    assert len({digest_at(7, "t", p, start) for p in range(9) for start in range(9)}) == 81


def test_a_result_has_the_types_of_the_sink_whatever_arrow_it_is():
    """A batch or a table, text or bytes, as pyarrow or polars name them."""
    table = pa.table({"value": pa.array(["a", None], pa.large_string()), "partition": pa.array([1, 2], pa.int64())})
    for result in (
        table,
        table.combine_chunks().to_batches()[0],
        pa.concat_tables([table.slice(0, 1), table.slice(1)]),
    ):
        rows = as_sink_rows(as_batch(result))
        assert rows.to_pydict() == {"value": [b"a", None], "partition": [1, 2]}
        assert rows.schema.types == [pa.binary(), pa.int32()]
    assert as_sink_rows(as_batch(polars.DataFrame({"value": ["a"]}).clear())).num_rows == 0


def example(name: str, page: str = "copy.md") -> Function:
    """The transform of this name on a page; a text is SQL."""
    text = Path(__file__).parents[4].joinpath("docs", page).read_text()
    begins = (f"def {name}(", f"{name} = ")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (found,) = [block for block in blocks if any(re.search(rf"^{re.escape(begin)}", block, re.M) for begin in begins)]
    defined: dict[str, Any] = {}
    exec(found, defined)
    return SqlTransform(defined[name]) if isinstance(defined[name], str) else defined[name]


EVENT = {
    "ce_specversion": b"1.0",
    "ce_id": b"in-2-7",
    "ce_source": b"/flights",
    "ce_type": b"com.example.flight.landed",
    "content-type": b"application/json",
}
LANDED = {"key": b"k", "value": b"{}", "headers": [{"key": name, "value": value} for name, value in EVENT.items()]}
LATE, ON_TIME = b'{"late":true}', b"on time"


@pytest.mark.parametrize(
    ("name", "topic", "given", "made"),
    [
        ("late", "out", [ON_TIME, LATE], [{"key": b"k", "value": LATE, "partition": 2}]),
        ("loud", "out", [ON_TIME, LATE], [{"key": b"k", "value": LATE.upper(), "partition": 2}]),
        (
            "routed",
            None,
            [LATE, ON_TIME],
            [
                {"key": b"k", "value": LATE, "topic": "late-flights"},
                {"key": b"k", "value": ON_TIME, "topic": "flights-on-time"},
            ],
        ),
        ("events", "out", [b"{}"], [LANDED]),
    ],
)
def test_the_examples_of_the_page_make_what_it_says(name, topic, given, made):
    """Of records from offset 7 on, and however these are cut. An event has the attributes that CloudEvents requires."""
    rows = [{"key": b"k", "value": v, "topic": "in", "partition": 2, "offset": n} for n, v in enumerate(given, 7)]
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(False))
    transform = example(name)
    assert transformed(checked(transform, name, EMPTY, topic), Chunk(batch, 7)).rows.to_pylist() == made
    check_transform(transform, batch)


def test_the_example_of_the_page_reads_events_of_one_type():
    """Beside others, and records without headers."""
    others = [{"key": b"t", "headers": [{"key": "ce_type", "value": b"other"}]}, {"key": b"n"}, {"headers": []}]
    batch = pa.RecordBatch.from_pylist([*others, LANDED], schema=arrow_schema(True))
    landed = example("landed")
    plan = checked(landed, "landed", batch.slice(0, 0), "out")
    assert transformed(plan, Chunk(batch, 0)).rows.to_pylist() == [LANDED]
    check_transform(landed, batch)


@pytest.mark.parametrize(
    ("result", "condition"),
    [
        ([b"a"], "EOS_TRANSFORM_RESULT"),
        (pa.table({"value": ["a"], "Key": ["a"]}), "EOS_SCHEMA_INVALID"),
        (pa.table({"key": ["a"]}), "EOS_SCHEMA_INVALID"),
        (pa.table({"value": [1.5]}), "EOS_SCHEMA_INVALID"),
        (pa.table({"value": ["a"], "partition": [2**40]}), "EOS_SCHEMA_INVALID"),
        (pa.table({"value": ["a"], "headers": [["a"]]}), "EOS_SCHEMA_INVALID"),
        (pa.table({"value": ["a"], "headers": [[{"key": b"\xff", "value": b"b"}]]}), "EOS_SCHEMA_INVALID"),
        (pa.table({"value": ["a"], "headers": [[{"k": "a", "v": b"b"}]]}), "EOS_SCHEMA_INVALID"),
        (pa.table({"value": ["a"], "headers": [[{"Key": "a", "value": b"b"}]]}), "EOS_SCHEMA_INVALID"),
    ],
)
def test_a_result_that_is_no_row_for_kafka_has_a_name(result, condition):
    """Whatever the function returns."""
    with raises(condition):
        as_sink_rows(as_batch(result))


HEADER = {"key": "h", "value": b"x"}
#: A text by another name, as Parquet and DuckDB have one for JSON.
NAMED = pa.opaque(pa.string(), "text", "somebody")
PLAIN, WIDE = (pa.struct([("key", text), ("value", pa.binary())]) for text in (pa.string(), pa.large_string()))


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("timestamp", pa.array([1_704_110_400_000])),
        ("timestamp", pa.array([19_723], pa.date32())),
        ("timestamp", pa.array(["2024-01-01T12:00:00Z"])),
        ("partition", pa.array([True])),
        ("partition", pa.array([1.0])),
        ("partition", pa.array([2], pa.date32())),
        ("partition", pa.array(["1"])),
        ("topic", pa.array([1])),
        ("topic", pa.array([True])),
        ("headers", pa.array([[{"key": 5, "value": b"x"}]])),
        ("headers", pa.array([[(5, "x")]], pa.map_(pa.int64(), pa.string()))),
        ("headers", pa.array([[HEADER]], pa.list_view(PLAIN))),
    ],
)
def test_a_column_of_another_kind_of_values_is_refused_before_anything_runs(column, values):
    """Arrow would make rows of 1970 of the milliseconds of 2024, which retention deletes."""

    def function(batch: pa.RecordBatch) -> pa.Table:
        result = pa.table({"value": [b"v"], column: values})
        return result if batch.num_rows else result.slice(0, 0)

    with raises("EOS_SCHEMA_INVALID.type", f"Column '{column}'"):
        checked(function, "f", EMPTY, "out")


NOON = 1_704_110_400


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("timestamp", pa.array([NOON], pa.timestamp("s", "America/New_York")), NOON * 10**6),
        ("timestamp", pa.array([NOON * 1000], pa.timestamp("ms")), NOON * 10**6),
        ("partition", pa.array([1]), 1),
        ("partition", pa.array([1], pa.uint8()), 1),
        ("topic", pa.array([b"t"]), "t"),
        ("topic", pa.array(["t"], pa.string_view()), "t"),
        ("topic", pa.array(["t"]).dictionary_encode(), "t"),
        ("key", pa.array([b"k"], pa.binary(1)), b"k"),
        ("key", pa.array([b"k"]).dictionary_encode(), b"k"),
        ("key", pa.array([bytes(16)], pa.uuid()), bytes(16)),
        ("topic", pa.ExtensionArray.from_storage(NAMED, pa.array(["t"])), "t"),
        ("headers", pa.array([[("h", b"x")]], pa.map_(pa.string(), pa.binary())), [HEADER]),
        ("headers", pa.array([[HEADER]], pa.large_list(WIDE)), [HEADER]),
        ("headers", pa.array([[HEADER]], pa.list_(PLAIN, 1)), [HEADER]),
        ("headers", pa.array([[HEADER | {"key": b"h"}]]), [HEADER]),
        ("headers", pa.array([[]]), []),
        *((name, pa.nulls(1), None) for name in ("key", "topic", "partition", "headers", "timestamp")),
    ],
)
def test_a_column_of_the_same_values_in_another_form_is_taken(column, values, expected):
    """Whichever library has made it. A moment without a zone is one of UTC."""
    rows = as_sink_rows(as_batch(pa.table({"value": [b"v"], column: values})))
    found = rows.column(column)
    assert (found.cast(pa.int64()) if column == "timestamp" and expected else found).to_pylist() == [expected]


def test_a_function_is_asked_for_its_columns_before_anything_runs():
    """By an empty batch; without a topic, nobody knows where the rows go."""
    transform = checked(lambda batch: batch.select(["key", "value"]), "f", EMPTY, "out")
    assert transform.columns == columns_of(["key", "value"], True)
    with raises("EOS_SCHEMA_INVALID.topic") as caught:
        checked(transform.function, "f", EMPTY, None)
    assert caught.value.parameters["column"] == "topic"
    assert checked(lambda batch: batch.select(["topic", "value"]), "f", EMPTY, None).columns.topic
    assert not checked(lambda batch: batch.select(["topic", "value"]), "f", EMPTY, "out").columns.topic


def test_a_function_returns_the_same_columns_each_time():
    """Else rows of one query would be digested and written in two ways."""
    transform = Transform(lambda batch: batch.select(["value"]), "f", columns_of(["key", "value"], True))
    with raises("EOS_TRANSFORM_RESULT"):
        transformed(transform, Chunk(records(0), 0))


def test_what_a_function_raises_says_where(caplog):
    """The error itself is the user's own. At the level DEBUG, the log has named the records before: where a worker dies
    or hangs in the function, that is its last line."""
    caplog.set_level(logging.DEBUG, "spark_eos")
    transform = Transform(lambda batch: 1 / 0, "f", columns_of(["value"], True))
    with pytest.raises(ZeroDivisionError) as caught:
        transformed(transform, Chunk(records(8192, 8193), 8192))
    assert "t-0 from offset 8192" in caught.value.__notes__[0]
    assert caplog.messages == ["the transform is given records of t-0 from offset 8192 on"]


def test_a_function_that_is_none_of_each_row_is_found_by_two_cuts():
    """Here one that looks at the row before, one that numbers rows, and one that knows no empty batch."""
    batch = records(*range(7))
    check_transform(lambda batch: batch.select(["value"]), batch)
    check_transform(lambda batch: batch.filter(pc.greater(batch["offset"], 3)).select(["value"]), batch)
    for wrong in (lambda batch: batch.select(["value"]).slice(1), lambda batch: batch.select(["value"]).slice(0, 3)):
        with raises("EOS_TRANSFORM_RESULT"):
            check_transform(wrong, batch)
    with pytest.raises(IndexError):
        check_transform(lambda batch: [batch["value"][0].as_py(), batch.select(["value"])][1], batch)


@pytest.mark.chaos
def test_a_result_that_arrow_cannot_hold_in_one_piece():
    """Beyond 2 GiB in a column, Arrow cuts: nothing of it may be left out."""
    piece = pa.array([bytes(1 << 20)] * 64, pa.binary())
    with raises("EOS_TRANSFORM_RESULT", "2 GiB"):
        as_sink_rows(as_batch(pa.table({"value": pa.chunked_array([piece] * 33)})))


def with_errors(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rejects records with an empty value, and those at offsets that can be divided by 3."""
    offsets = batch.column("offset").to_pylist()
    errors = [
        "empty" if value == b"" else f"{offset} is a multiple" if offset % 3 == 0 else None
        for offset, value in zip(offsets, batch.column("value").to_pylist(), strict=True)
    ]
    columns = {"value": batch.column("value"), "error": pa.array(errors, pa.string()), "offset": batch.column("offset")}
    return pa.RecordBatch.from_pydict(columns)


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from([b"", b"a"])), unique_by=lambda row: row[0]))
def test_records_with_an_error_are_no_rows_but_letters_with_their_own_key_and_value(rows):
    """Each once, with the reason and the place that it comes from, behind its own headers; the others are written, in
    order."""
    rows.sort()
    record = {"topic": "t", "partition": 3, "headers": [{"key": "mine", "value": b"1"}]}
    found = [{**record, "offset": n, "key": b"k%d" % n, "value": value} for n, value in rows]
    chunk = Chunk(pa.RecordBatch.from_pylist(found, schema=arrow_schema(True)), rows[0][0] if rows else 0)
    done = transformed(checked(with_errors, "f", EMPTY, "out", "deadLetters"), chunk)
    assert [row["value"] for row in done.rows.to_pylist()] == [value for n, value in rows if value and n % 3]
    letters = letters_of(chunk, done.rejected, "c-1").to_pylist()
    assert [(row["key"], row["value"]) for row in letters] == [
        (b"k%d" % n, value) for n, value in rows if not value or n % 3 == 0
    ]
    for row in letters:
        assert row["headers"][0] == {"key": "mine", "value": b"1"}
        headers = {header["key"]: header["value"].decode() for header in row["headers"]}
        offset = int(headers["__streams.errors.offset"])
        assert row["key"] == b"k%d" % offset
        assert (headers["__streams.errors.topic"], headers["__streams.errors.partition"]) == ("t", "3")
        assert headers["__spark_eos.source.cluster"] == "c-1"
        assert headers["__streams.errors.exception"] == "EOS_RECORD_REJECTED"
        assert headers["__streams.errors.message"] == ("empty" if row["value"] == b"" else f"{offset} is a multiple")


def test_an_error_names_its_record_by_an_offset_of_the_batch():
    """Without the column, and with an offset that was not given, the transform is wrong."""

    def no_offset(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"value": batch.column("value"), "error": batch.column("value")})

    def other_offset(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"value": [b""] * len(batch), "error": ["x"] * len(batch), "offset": [99] * len(batch)}).cast(
            pa.schema({"value": pa.binary(), "error": pa.string(), "offset": pa.int64()})
        )

    with pytest.raises(SchemaError, match=r"'error'.*without the column 'offset'"):
        checked(no_offset, "f", EMPTY, "out")
    with pytest.raises(RowError, match="offset 99, which it was not given"):
        transformed(checked(other_offset, "f", EMPTY, "out"), Chunk(records(7), 7))


@pytest.mark.parametrize(
    ("errors", "offsets"),
    [
        (pa.array([False]), pa.array([7])),
        (pa.array([0]), pa.array([7])),
        (pa.array([b"why"]), pa.array([7])),
        (pa.array([["why"]]), pa.array([7])),
        (pa.array(["why"]), pa.array([7.0])),
        (pa.array(["why"]), pa.array(["7"])),
    ],
)
def test_a_record_is_rejected_by_a_text_and_named_by_a_whole_number(errors, offsets):
    """Where false says that all is well, no record may be left out, and the query does not even start."""

    def function(batch: pa.RecordBatch) -> pa.Table:
        result = pa.table({"value": [b"v"], "error": errors, "offset": offsets})
        return result if batch.num_rows else result.slice(0, 0)

    with raises("EOS_SCHEMA_INVALID.transform_reject", "by which it rejects records"):
        checked(function, "f", EMPTY, "out", "drop")


#: Arrow does not look at what a string consists of.
NO_UTF_8 = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        (pa.array(["why"]), "why"),
        (pa.array(["why"], pa.large_string()), "why"),
        (pa.array(["why"], pa.string_view()), "why"),
        (pa.array(["why"]).dictionary_encode(), "why"),
        (pa.ExtensionArray.from_storage(NAMED, pa.array(["why"])), "why"),
        (NO_UTF_8, "\ufffd"),
    ],
)
def test_a_reason_is_a_text_of_any_kind(errors, reason):
    """As pyarrow, polars and DuckDB name them; one that is all null rejects nothing."""
    result = pa.RecordBatch.from_pydict({"value": [b"v"], "error": errors, "offset": [7]})
    assert without_rejected(as_batch(result))[1] == {7: reason}
    nulls = result.set_column(1, "error", pa.nulls(1))
    assert without_rejected(nulls) == (result.select(["value"]), {})


@pytest.mark.parametrize("twice", ["error", "offset", "value"])
def test_a_column_is_returned_once_also_one_by_which_records_are_rejected(twice):
    """Arrow itself only says that it cannot choose."""
    columns = {"value": pa.array([b"v"]), "error": pa.array(["why"]), "offset": pa.array([7])}
    names = [*columns, twice]
    batch = pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
    for result in (batch, pa.Table.from_batches([batch])):
        with pytest.raises(SchemaError, match=f"Column '{twice}' exists twice"):
            as_batch(result)


@pytest.mark.parametrize("column", ["value", "error", "nested", "category"])
def test_a_frame_of_polars_can_reject_records(column):
    """Its texts are views, also within other columns, of which Arrow filters no rows."""
    frame = polars.DataFrame({"value": ["a", "b"], "error": ["why", None], "offset": [7, 8]}).with_columns(
        nested=polars.struct(polars.col("value"), many=polars.concat_list("value", "value")),
        category=polars.col("value").cast(polars.Categorical),
    )
    rows, reasons = without_rejected(as_batch(frame.select(*dict.fromkeys([column, "error", "offset"]))))
    assert reasons == {7: "why"}
    expected = [] if column == "error" else frame[column].to_list()[1:]
    assert [value for name in rows.schema.names for value in rows.column(name).to_pylist()] == expected
