"""Rows of many small ranges, out of the answers to one request."""

from __future__ import annotations

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.requests.fetch import FetchResponse
from spark_eos.source import small_ranges
from spark_eos.source.fetching import Fetching
from spark_eos.source.small_ranges import take
from tests.support.judges.record_batches import Batch, encode, plain

FETCHING = Fetching(broker_client(KafkaProperties({"bootstrap.servers": "nobody"})))
WHOLE = encode(plain(0, b"a"))


@pytest.mark.parametrize(("batches", "rows"), [(3, 3), (40, None)])
def test_what_is_large_only_when_it_is_decompressed_is_left_to_a_reading_of_its_own(batches, rows):
    """An answer of some KiB would fill the memory; the range alone is read piece by piece."""
    data = b"".join(encode(plain(at, bytes(1_000_000), codec="zstd")) for at in range(batches))
    range_ = OffsetRange("t", 3, 0, batches)
    taken = take(FETCHING, range_, {("t", 3): (FetchResponse(0, len(data)), data)})
    assert rows == (None if taken is None else sum(batch.num_rows for batch in taken))


@pytest.mark.parametrize(("last_epoch", "end", "rows"), [(-1, 3, 3), (7, 3, 3), (8, 3, None), (7, 2, 2), (7, 5, None)])
def test_only_what_is_of_the_log_for_which_the_range_was_planned_is_used(last_epoch, end, rows):
    """By the leader epoch of its last record, 7 in these batches; where that is not there, the range is read alone."""
    data = b"".join(encode(plain(at, b"x")) for at in range(3)) + encode(Batch((), 3, 9))
    range_ = OffsetRange("t", 3, 0, end, "", 7, last_epoch, last_epoch)
    if end == 5:
        data = data[: len(data) - len(encode(Batch((), 3, 9)))]
    taken = take(FETCHING, range_, {("t", 3): (FetchResponse(0, len(data)), data)})
    assert rows == (None if taken is None else sum(batch.num_rows for batch in taken))


@pytest.mark.parametrize(
    ("answer", "data"),
    [
        (FetchResponse(0, len(WHOLE)), WHOLE[:-1] + bytes([WHOLE[-1] ^ 1])),
        (FetchResponse(0, len(WHOLE) - 1), WHOLE[:-1]),
        (FetchResponse(Code.OFFSET_OUT_OF_RANGE, len(WHOLE)), WHOLE),
        (FetchResponse(0, 0), b""),
    ],
    ids=["damaged", "cut off", "refused", "empty"],
)
def test_answers_that_are_wrong_are_not_used(answer, data):
    """Whatever comes for a range alone is then for that reading to judge."""
    assert take(FETCHING, OffsetRange("t", 3, 0, 1), {("t", 3): (answer, data)}) is None


@pytest.fixture
def unanswered(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What leaders were asked together, who do not answer."""
    asked = list[object]()

    def nobody(*question: object, **_: object) -> None:
        asked.append(question)
        raise ConnectionFailed("EOS_KAFKA_UNREACHABLE", "No answer.", hint="")

    monkeypatch.setattr(small_ranges, "fetch_many", nobody)
    return asked


@pytest.mark.parametrize(
    "ranges",
    [
        [OffsetRange("t", 0, 0, 3, "AAAAAAAAAAAAAAAAAAAAAQ"), OffsetRange("u", 0, 0, 3)],
        [OffsetRange("t", 0, 0, 4), OffsetRange("t", 0, 4, 10)],
    ],
    ids=["one has an id", "of one partition"],
)
def test_what_one_request_cannot_name_is_read_alone(unanswered, ranges):
    """Topics are named in one way, and those of an old line of the offset log have no ids; an answer is known by its
    partition."""
    assert (small_ranges.gather(FETCHING, ranges), unanswered) == ({}, [])


def test_where_no_leader_answers_nothing_is_gathered(unanswered):
    """The reading of a range alone knows for how long to try."""
    assert small_ranges.gather(FETCHING, [OffsetRange("t", 0, 0, 1)]) == {}
    assert len(unanswered) == 1
