"""A transform is tried on a sample of records: what breaks its rules is found, and nothing else is an error."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.base import system
from spark_eos.errors import ConnectionFailed, EosError, RowError, SchemaError
from spark_eos.options.parse import stream_options
from spark_eos.pipelines.copy import sample
from spark_eos.pipelines.copy.comparing import differing
from spark_eos.pipelines.copy.plan import Function, OnMalformed, Transform
from spark_eos.pipelines.copy.sample import check_by_sample, check_chunk, check_chunks, check_here, types_by_sample
from spark_eos.pipelines.copy.sql import SqlTransform
from spark_eos.pipelines.copy.transforming import Chunk, Transformed, checked, transformed
from spark_eos.source.schema import arrow_schema

EMPTY = pa.RecordBatch.from_pylist([], schema=arrow_schema(False))
LONG_S = 60.0


def records(count: int, first: int = 40) -> pa.RecordBatch:
    """Of t-3; the values are their offsets."""
    rows = [{"topic": "t", "partition": 3, "offset": n, "value": b"%d" % n} for n in range(first, first + count)]
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(False))


def tried(function: Function, count: int = 20, on_malformed: OnMalformed = "fail") -> None:
    transform = checked(function, "f", EMPTY, "out", on_malformed)
    check_chunk(transform, Chunk(records(count), 40), system.monotonic() + LONG_S, transformed)


def values(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["value"])


def sorted_backwards(batch: pa.RecordBatch) -> pa.RecordBatch:
    return values(batch.sort_by([("offset", "descending")]))


def numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [b"%d" % n for n in range(batch.num_rows)]}, TEXTS)


def without_neighbours(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Of each three records that come together, the first."""
    return values(batch.take(pa.array(range(0, batch.num_rows, 3), pa.int64())))


def by_chance(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [b"%f" % random.random() for _ in range(batch.num_rows)]}, TEXTS)


TEXTS = pa.schema([("value", pa.binary())])


@pytest.mark.parametrize("count", [1, 2, 3, 128])
def test_a_function_of_each_row_passes(count):
    """Filters, and more rows of a record; and SQL, with records for which it fails."""
    tried(values, count)
    tried(lambda batch: values(batch.filter(pc.greater(batch["offset"], 41))), count)
    tried(lambda batch: values(batch.take(pa.array([n // 2 for n in range(2 * batch.num_rows)], pa.int64()))), count)
    tried(SqlTransform("SELECT CAST(replace(decode(value), '45', 'x') AS INT)::VARCHAR AS value FROM input"), count)
    tried(SqlTransform('SELECT unnest([value, value]) AS value FROM input WHERE "offset" % 3 = 0'), count)


@pytest.mark.parametrize(("wrong", "offset"), [(sorted_backwards, 40), (numbered, 50), (without_neighbours, 50)])
def test_a_function_that_looks_at_other_records_is_refused_by_the_place(wrong, offset):
    """By halves, whose second one begins at 50."""
    message = rf"20 records in pieces instead of together: near the record at offset {offset} of t-3"
    with pytest.raises(RowError, match=message) as caught:
        tried(wrong)
    assert caught.value.entry == "EOS_TRANSFORM_RESULT.sample"
    assert {"topic": "t", "partition": 3, "offset": offset}.items() <= caught.value.parameters.items()


def test_what_only_some_numbers_of_records_show_is_found_too(monkeypatch):
    """Here single records, and those of another partition; but only while there is time, so that a start does not wait
    for a slow transform."""

    def not_alone(batch: pa.RecordBatch) -> pa.RecordBatch:
        return values(batch).slice(batch.num_rows == 1)

    def of_the_second(batch: pa.RecordBatch) -> pa.RecordBatch:
        return sorted_backwards(batch) if batch.num_rows and batch["offset"][0].as_py() >= 100 else values(batch)

    sampled = [Chunk(records(20, first), first) for first in (40, 100)]
    for wrong, offset in ((not_alone, 42), (of_the_second, 100)):
        transform = checked(wrong, "f", EMPTY, "out")
        monkeypatch.setattr(sample, "_TRYING_S", LONG_S)
        with pytest.raises(RowError, match=rf"in pieces.*: near the record at offset {offset} of t-3"):
            check_here(transform, sampled, transformed)
        monkeypatch.setattr(sample, "_TRYING_S", -1.0)
        check_here(transform, sampled, transformed)


def test_a_function_that_is_not_deterministic_is_named_as_that():
    """It differs when it gets the same records again."""
    with pytest.raises(RowError, match="gets 20 records again: near the record at offset 40 of t-3") as caught:
        tried(by_chance)
    assert caught.value.entry == "EOS_TRANSFORM_RESULT.sample"


@pytest.mark.parametrize("on_malformed", ["fail", "drop"])
def test_a_record_that_is_rejected_in_some_pieces_alone_is_found(on_malformed: OnMalformed):
    """Its row is missing there, and its reason."""
    schema = pa.schema([("value", pa.binary()), ("offset", pa.int64()), ("error", pa.string())])

    def rejects(batch: pa.RecordBatch) -> pa.RecordBatch:
        every = batch.num_rows == 20
        errors = ["it is 47" if n == 47 and every else None for n in batch.column("offset").to_pylist()]
        return pa.RecordBatch.from_arrays(
            [batch["value"], batch["offset"], pa.array(errors, pa.string())], schema=schema
        )

    with pytest.raises(RowError, match="near the record at offset 40 of t-3"):
        tried(rejects, on_malformed=on_malformed)


def test_a_result_that_is_no_row_of_the_sink_is_refused_with_the_place():
    """Other columns than for no records, a type that does not fit, a rejected record that it was not given."""
    other = lambda batch: batch.select(["key", "value"] if batch.num_rows else ["value"])  # noqa: E731
    with pytest.raises(RowError, match=r"different ones for an empty batch\. It got a sample.*: t-3 from offset 40 on"):
        tried(other)

    def misplaced(batch: pa.RecordBatch) -> pa.Table:
        return pa.table({"value": batch["value"], "partition": pa.array([1 << 40] * batch.num_rows, pa.int64())})

    with pytest.raises(SchemaError, match=r"'partition'.*t-3 from offset 40 on") as caught:
        tried(misplaced)
    assert caught.value.parameters["offset"] == 40

    def unknown(batch: pa.RecordBatch) -> pa.Table:
        wrong = pa.array(["wrong"] * batch.num_rows, pa.string())
        return pa.table({"value": batch["value"], "offset": pc.add(batch["offset"], 100), "error": wrong})

    with pytest.raises(RowError, match=r"offset 140, which it was not given.*t-3 from offset 40 on"):
        tried(unknown)


def test_what_fails_loudly_is_left_to_the_tasks(caplog):
    """The query may never read that record; whatever the function raises, and for whichever piece: also an error of the
    connector that is none of the transform, as that of a registry that does not answer."""

    def raising(batch: pa.RecordBatch) -> pa.RecordBatch:
        if b"47" in batch.column("value").to_pylist():
            raise ValueError("a secret of the record")
        return values(batch)

    def indexing(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows and batch.num_rows != 20:
            _ = batch.column("value").to_pylist()[19]
        return values(batch)

    def asking(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows:
            raise EosError("EOS_REGISTRY_UNREACHABLE", "it is down", hint="-")
        return values(batch)

    caplog.set_level("INFO")
    for function in (raising, indexing, asking):
        tried(function)
    assert "ValueError" in caplog.text and "IndexError" in caplog.text and "secret" not in caplog.text


def test_what_a_function_keeps_from_call_to_call_does_not_travel_to_the_tasks():
    """It is tried as a copy, as tasks get it."""
    seen: list[int] = []

    def counting(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.num_rows)
        return values(batch)

    tried(counting)
    assert seen == [0]


@dataclass
class Broken:
    """A client of brokers that fails whatever it is asked."""

    error: Exception

    def __getattr__(self, name: str) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [ConnectionFailed("EOS_X", "gone", hint="-"), OSError("gone"), ValueError("?")])
def test_a_sample_that_cannot_be_had_is_no_error(error):
    """The query may do without it."""
    options = stream_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "in"})
    with pytest.raises(type(error)):
        list(sample.sample(Broken(error), options))
    check_by_sample(Broken(error), options, checked(sorted_backwards, "f", EMPTY, "out"))


@given(st.integers(1, 40), st.lists(st.integers(1, 9), max_size=40), st.integers(0, 40), st.integers(1, 12))
def test_the_first_piece_that_differs_is_found_wherever_it_is(count, sizes, at, wrong_size):
    """A transform that is wrong for pieces of one size which have one record; whatever the cuts."""
    batch = records(count, first=0)

    def apply(piece: pa.RecordBatch) -> Transformed:
        offsets = piece.column("offset").to_pylist()
        is_wrong = piece.num_rows == wrong_size and at in offsets
        return Transformed(pa.RecordBatch.from_pydict({"value": [b"%d" % (n + is_wrong) for n in offsets]}), {})

    whole = Transformed(pa.RecordBatch.from_pydict({"value": [b"%d" % n for n in range(count)]}), {})
    cuts = []
    for size in sizes:
        if sum(cuts) < count:
            cuts.append(min(size, count - sum(cuts)))
    cuts += [1] * (count - sum(cuts))
    firsts = [sum(cuts[:n]) for n in range(len(cuts))]
    expected = [
        first for first, size in zip(firsts, cuts, strict=True) if size == wrong_size and first <= at < first + size
    ]
    assert differing(apply, batch, whole, cuts) == (expected[0] if expected else None)


def hostile(does: Callable[[], object], *offsets: int) -> Function:
    """A function of each row that does something else at these offsets."""

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not set(offsets).isdisjoint(batch.column("offset").to_pylist()):
            does()
        return values(batch)

    return function


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample's process has a third of a second of the processor."""
    monkeypatch.setattr(sample, "_CPU_S", 0.3)


def looping() -> None:
    while True:
        pass


def crashing() -> None:
    ctypes.string_at(0)


def types(transform: Transform, found: list[Chunk], _: object) -> None:
    types_by_sample(transform, found)


@pytest.mark.parametrize(
    ("does", "offset", "checks", "why"),
    [(looping, 40, check_chunks, "of the processor"), (crashing, 42, types, "SIGSEGV")],
)
def test_a_record_for_which_a_function_takes_too_much_is_named_on_the_driver(impatient, does, offset, checks, why):
    """And the driver lives. What a Python function does stops a query in any case, as in tasks."""
    transform = checked(hostile(does, offset), "f", EMPTY, "out", "drop")
    with pytest.raises(RowError, match=rf"at offset {offset} of t-3.*{why}") as caught:
        checks(transform, [Chunk(records(4), 40)], transformed)
    assert caught.value.entry == "EOS_TRANSFORM_RESULT.beyond"


def test_a_function_that_takes_much_for_each_record_is_left_to_the_tasks(impatient):
    """As it may load a model first."""
    transform = checked(hostile(looping, 40, 41), "f", EMPTY, "out")
    check_chunks(transform, [Chunk(records(2), 40)], transformed)
