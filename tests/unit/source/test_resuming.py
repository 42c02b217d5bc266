"""What a task still reads of a range that its log no longer has as a whole, where data loss is not to fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.offset_for_leader_epoch import EpochEnd
from spark_eos.source import diagnosis, task
from spark_eos.source.diagnosis import why_not
from spark_eos.source.epochs import Leaders
from spark_eos.source.fetching import Fetching
from tests.support.judges.conditions import raises

CLIENT = BrokerClient(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))
RANGE = OffsetRange("t", 0, 30, 100, "", 1, 1, 1)


@dataclass
class Log:
    """Offsets ``first`` to ``end``; those from ``new`` on are of leader epoch 2, the others of 1. A reader gets no
    further than ``stuck`` in the first try."""

    first: int
    end: int
    stuck: int
    new: int = 1000

    def leaders_of(self, *_: Any) -> Leaders:
        where = min(self.new, self.end)
        return Leaders(
            lambda asked: {place: EpochEnd(1, where) for place in asked},
            lambda places: dict.fromkeys(places, self.first),
            lambda place, offset: (where, 2 if self.new < self.end else -1),
        )

    def reads(self, fetching: Fetching, range_: OffsetRange) -> Iterator[int]:
        stuck, self.stuck = self.stuck, 1000
        for offset in range(range_.start, range_.end):
            if not self.first <= offset < min(stuck, self.end):
                raise why_not(CLIENT, range_, offset)
            yield offset


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """``resumed(log)``: the offsets that a task reads of `RANGE`."""

    def offsets(log: Log, *, fail: bool = False) -> list[int]:
        monkeypatch.setattr(diagnosis, "begin_offsets", lambda *_: {"t": {0: log.first}})
        monkeypatch.setattr(diagnosis, "end_offsets", lambda *_: {"t": {0: log.end}})
        monkeypatch.setattr(diagnosis, "leaders_of", log.leaders_of)
        return list(task.resuming(Fetching(CLIENT, fail_on_data_loss=fail), RANGE, log.reads))

    return offsets


@pytest.mark.parametrize(
    ("log", "offsets"),
    [
        pytest.param(Log(0, 50, stuck=40), range(30, 50), id="its leader was silent before its end"),
        pytest.param(Log(0, 50, stuck=50), range(30, 50), id="it ends early"),
        pytest.param(Log(0, 20, stuck=20), [], id="it ends before the range"),
        # The driver goes on where records were written anew, so that they would be read twice.
        pytest.param(Log(0, 50, stuck=40, new=45), range(30, 45), id="its end was written anew"),
        pytest.param(Log(0, 50, stuck=40, new=35), range(30, 40), id="what was read was written anew"),
        pytest.param(Log(70, 200, stuck=1000), range(70, 100), id="it begins later"),
        pytest.param(Log(120, 200, stuck=1000), [], id="it begins behind the range"),
    ],
)
def test_what_the_log_still_has_is_read(resumed, log, offsets):
    """From where it begins now up to its end, or to where records were written anew."""
    assert resumed(log) == list(offsets)


def test_a_loss_is_raised_where_it_is_to_fail(resumed):
    """With the offsets that are not there."""
    with raises("EOS_SOURCE_DATA_LOSS") as caught:
        resumed(Log(0, 50, stuck=40), fail=True)
    assert [caught.value.parameters[name] for name in ("expected", "found")] == [100, 50]


def test_a_log_that_has_everything_is_no_loss(resumed):
    """The task fails, and its next attempt reads the range again."""
    with raises("EOS_SOURCE_STALLED"):
        resumed(Log(0, 100, stuck=40))
