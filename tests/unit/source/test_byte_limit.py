"""How many bytes a micro-batch gets, where looks at the log say what lies there."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.records.encode import Encoder, Rows
from spark_eos.kafka.requests.fetch import FetchResponse
from spark_eos.source import byte_limit as module
from spark_eos.source.byte_limit import LOOK_BYTES, SampledBatch, Sizes


class Log:
    """Partition 0 of topic t, of batches of ``(offsets, bytes)``; counts the looks."""

    def __init__(self, *batches: tuple[int, int]) -> None:
        ends = [0]
        for offsets, _ in batches:
            ends.append(ends[-1] + offsets)
        self.pieces = [SampledBatch(a, b, size) for (a, b), (_, size) in zip(pairwise(ends), batches, strict=True)]
        self.end = ends[-1]
        self.looks = 0

    def look(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[SampledBatch]]:
        """Whole batches, as a broker gives them: the first in any case, more while they fit."""
        self.looks += 1
        return {partition: self._from(at) for partition, at in wanted.items()}

    def _from(self, at: int) -> list[SampledBatch]:
        found: list[SampledBatch] = []
        for piece in self.pieces:
            if piece.end > at:
                if found and sum(one.size for one in found) + piece.size > LOOK_BYTES:
                    break
                found.append(piece)
        return found

    def bytes(self, start: int, end: int) -> int:
        """The bytes of the batches that a reader of these offsets fetches."""
        return sum(piece.size for piece in self.pieces if piece.end > start and piece.begin < end)

    def within(self, start: int, most: int, sizes: Sizes | None = None) -> int:
        return (sizes or Sizes(self.look)).within({"t": {0: start}}, {"t": {0: self.end}}, most)["t"][0]


def test_a_small_limit_is_kept_to_the_batch():
    """What one look has fetched is known exactly: the batch that reaches the limit is the last."""
    log = Log(*[(10, 1000)] * 50)
    assert log.within(0, 3000) == 30
    assert log.within(0, 3001) == 40
    assert log.within(35, 1500) == 50
    assert log.within(0, 10**9) == log.end
    assert Log((14, 229), (1, 229), (181, 229)).within(13, 229) == 14  # by no fraction of a byte more


def test_a_large_limit_is_estimated_by_few_looks():
    """Rows that are all alike: to the look."""
    log = Log(*[(100, 16_000)] * 10_000)
    end = log.within(0, 80_000_000)
    assert abs(log.bytes(0, end) - 80_000_000) <= LOOK_BYTES + 16_000
    assert log.looks <= 10


@pytest.mark.parametrize(
    ("first", "later", "least"),
    [
        ([(100, 10_000)] * 300, [(100, 100_000)] * 1000, 5_000_000),
        ([(1000, 100_000)] * 5, [(1, 100_000)] * 3000, 2_000_000),
    ],
    ids=["ten times, in the middle of what the first look lets through", "a thousand times, right behind that look"],
)
def test_rows_that_become_larger_are_not_run_over(first, later, least):
    """Whether the next batches are as large as those before, or of one row each."""
    log = Log(*first, *later)
    assert least < log.bytes(0, log.within(0, 8_000_000)) < 10_000_000


def test_where_there_is_much_room_nobody_looks_again():
    """A query that keeps up needs no look at the log: the last density is enough."""
    log = Log(*[(10, 1000)] * 100)
    sizes = Sizes(log.look)
    log.within(0, 10_000, sizes)
    log.looks = 0
    assert log.within(900, 100_000_000, sizes) == log.end
    assert log.looks == 0


def test_partitions_share_by_their_bytes():
    """Not by their offsets: rows of one may be much larger than those of another."""
    small, large = Log(*[(100, 1000)] * 1000), Log(*[(1, 1000)] * 1000)
    sizes = Sizes(lambda wanted: {at: (small, large)[at[1]].look(wanted)[at] for at in wanted})
    found = sizes.within({"t": {0: 0, 1: 0}}, {"t": {0: small.end, 1: large.end}}, 1_000_000)
    assert 400_000 <= small.bytes(0, found["t"][0]) <= 600_000
    assert 400_000 <= large.bytes(0, found["t"][1]) <= 600_000


def test_partitions_are_looked_at_together():
    """A thousand cost as many rounds of requests as one."""
    log, one = Log(*[(100, 16_000)] * 10_000), Log(*[(100, 16_000)] * 10_000)
    ends = {"t": dict.fromkeys(range(1000), log.end)}
    found = Sizes(log.look).within({"t": dict.fromkeys(range(1000), 0)}, ends, 80_000_000_000)
    assert set(found["t"].values()) == {one.within(0, 80_000_000)}
    assert log.looks == one.looks


def test_a_partition_without_an_answer_gets_on():
    """Its leader is away: reading waits for it, and says so."""
    found = Sizes(lambda wanted: {at: [] for at in wanted}).within({"t": {0: 5}}, {"t": {0: 10_000}}, 100_000)
    assert 5 < found["t"][0] < 10_000


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(70, 200_000)), min_size=1, max_size=200),
    st.integers(1, 20_000_000),
    st.data(),
)
def test_whatever_lies_there_it_ends_within_the_log_and_gets_on(batches, most, data):
    """After a bounded number of looks; and where one look sees all, the limit is passed by no more than a batch."""
    log = Log(*batches)
    start = data.draw(st.integers(0, log.end - 1))
    end = log.within(start, most)
    assert start < end <= log.end
    assert log.looks <= 33
    if log.bytes(start, log.end) <= LOOK_BYTES and end < log.end:
        assert most <= log.bytes(start, end) < most + max(size for _, size in batches)


def test_a_batch_that_a_common_answer_has_no_room_for_is_fetched_alone(monkeypatch):
    """Brokers leave it out. A leader that does not answer, or refuses, is left to the tasks."""
    rows = Rows(pa.nulls(3, pa.binary()), pa.array([b"a", b"b", b"c"]), np.zeros(3, np.int64))
    ((_, sealed),) = Encoder(7, 1).encode(rows, [3], [0])
    data = bytes(sealed.data)
    full, empty, refused = FetchResponse(0, len(data)), FetchResponse(0, 0), FetchResponse(6, 0)
    answers = {("t", 0): (full, data), ("t", 1): (empty, b""), ("t", 2): (refused, b"")}
    many, alone = list[int](), list[int]()
    monkeypatch.setattr(module, "_TOGETHER", 2)
    monkeypatch.setattr(
        module,
        "fetch_many",
        lambda _, wanted, **__: many.append(len(wanted)) or {at: answers[at] for at in wanted if at in answers},
    )
    monkeypatch.setattr(
        module, "fetch_once", lambda _, topic, partition, *__, **___: alone.append(partition) or (full, data)
    )
    client: Any = None
    seen = module.look_at(client, "read_committed")({("t", p): 1 for p in range(5)})
    batch = [SampledBatch(0, 3, len(data))]
    assert seen == {("t", 0): batch, ("t", 1): batch, ("t", 2): [], ("t", 3): [], ("t", 4): []}
    assert (many, alone) == ([2, 2, 1], [1])
