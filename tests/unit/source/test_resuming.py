"""What a task still reads of a range that its log no longer has as a whole, where data loss is not to fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import DataLossError, KafkaError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.offset_for_leader_epoch import EpochEnd
from spark_eos.source import diagnosis, task
from spark_eos.source.diagnosis import why_not
from spark_eos.source.epochs import Leaders
from spark_eos.source.fetching import Fetching

KAFKA = KafkaProperties({"bootstrap.servers": "127.0.0.1:1"})
CLIENT: Any = None


class Log:
    """Offsets ``first`` to ``end``; those from ``new`` on are of leader epoch 2, the others of 1. A reader gets no
    further than ``stuck`` in the first try."""

    def __init__(self, patch: pytest.MonkeyPatch, first: int, end: int, stuck: int, new: int = 1000) -> None:
        self.first, self.end, self.stuck = first, end, stuck
        self.read: list[int] = []
        patch.setattr(diagnosis, "begin_offsets", lambda *_: {"t": {0: first}})
        patch.setattr(diagnosis, "end_offsets", lambda *_: {"t": {0: end}})
        where = min(new, end)
        leaders = Leaders(
            lambda asked: {place: EpochEnd(1, where) for place in asked},
            lambda places: dict.fromkeys(places, first),
            lambda place, offset: (where, 2 if new < end else -1),
        )
        patch.setattr(diagnosis, "leaders_of", lambda *_: leaders)

    def reads(self, fetching: Fetching, range_: OffsetRange) -> Iterator[int]:
        for offset in range(range_.start, range_.end):
            if not self.first <= offset < min(self.stuck, self.end):
                self.stuck = 1000
                raise why_not(CLIENT, range_, offset)
            yield offset

    def task(self, range_: OffsetRange, fail: bool = False) -> list[int]:
        return list(task.resuming(Fetching(BrokerClient(KAFKA), fail_on_data_loss=fail), range_, self.reads))


RANGE = OffsetRange("t", 0, 30, 100, "", 1, 1, 1)


def test_rows_before_an_early_end_are_read(monkeypatch):
    """The leader was silent before the log's end: what it still has follows."""
    assert Log(monkeypatch, 0, 50, stuck=40).task(RANGE) == list(range(30, 50))
    assert Log(monkeypatch, 0, 50, stuck=50).task(RANGE) == list(range(30, 50))
    assert Log(monkeypatch, 0, 20, stuck=20).task(RANGE) == []


def test_rows_that_were_written_anew_are_left_to_the_next_plan(monkeypatch):
    """There the driver goes on, so that they would be read twice."""
    assert Log(monkeypatch, 0, 50, stuck=40, new=45).task(RANGE) == list(range(30, 45))
    assert Log(monkeypatch, 0, 50, stuck=40, new=35).task(RANGE) == list(range(30, 40))


def test_a_log_that_begins_later_is_read_from_there(monkeypatch):
    """Up to the end of the range."""
    assert Log(monkeypatch, 70, 200, stuck=1000).task(RANGE) == list(range(70, 100))
    assert Log(monkeypatch, 120, 200, stuck=1000).task(RANGE) == []


def test_a_loss_is_raised_where_it_is_to_fail(monkeypatch):
    """With the offsets that are not there."""
    with pytest.raises(DataLossError) as caught:
        Log(monkeypatch, 0, 50, stuck=40).task(RANGE, fail=True)
    assert [caught.value.parameters[name] for name in ("expected", "found")] == [100, 50]


def test_a_log_that_has_everything_is_no_loss(monkeypatch):
    """The task fails, and its next attempt reads the range again."""
    with pytest.raises(KafkaError) as caught:
        Log(monkeypatch, 0, 100, stuck=40).task(RANGE)
    assert caught.value.condition == "EOS_SOURCE_STALLED"
