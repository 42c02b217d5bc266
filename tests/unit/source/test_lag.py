"""When the lag is told, and what it is, by looks that are put in place of the cluster's answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.checkpoint.offset_log import Position
from spark_eos.options.parse import stream_options
from spark_eos.source import lag, reader
from spark_eos.source.plan import Next, Run
from spark_eos.source.reader import EosKafkaStreamReader

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


class Told(list[dict[str, Any]]):
    """Events, in their order."""

    def __bool__(self) -> bool:
        return True

    def tell(self, event: str, **values: Any) -> None:
        self.append({"event": event, **values})


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time, in seconds."""
    now = SimpleNamespace(s=100.0)
    monkeypatch.setattr(lag, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


class Watched:
    """A source on the driver, whose topic's ends are set."""

    def __init__(self, now: SimpleNamespace) -> None:
        self._now, self.ends, self.told = now, {"t": {0: 10}}, Told()
        self._reader = EosKafkaStreamReader(stream_options(OPTIONS), self.told)  # type: ignore[arg-type]
        self._reader.__dict__["_watch"] = SimpleNamespace(
            look=lambda: (None, self.ends), high_watermarks=lambda _: self.ends, pinned=False
        )

    def planned(self, position: Position, *_: object) -> Next:
        more = any(end > position.offsets["t"][p] for p, end in self.ends.get("t", {}).items())
        return Next(Position(self.ends) if more else None, Run())

    def look(self, after_s: float, end: int | None, at: int = 10) -> list[PartitionOffsets]:
        """The lags that are told by a look, to the last stable offset and to the high watermark."""
        self._now.s += after_s
        self.ends, before = {} if end is None else {"t": {0: end}}, len(self.told)
        self._reader._next(Position({"t": {0: at}}), None)
        return [
            {topic: {int(p): place["stable"] for p, place in of.items()} for topic, of in event["lag"].items()}
            for event in self.told[before:]
        ]


@pytest.fixture
def watched(now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Watched:
    found = Watched(now)
    monkeypatch.setattr(reader, "answered", lambda plan, _: plan)
    monkeypatch.setattr(reader, "next_batch", found.planned)
    return found


def lag_watch(high: PartitionOffsets) -> lag.LagWatch:
    """It warns after a minute."""
    client: Any = None
    topics: Any = SimpleNamespace(high_watermarks=lambda _: high)
    return lag.LagWatch(client, topics, 60.0)


def test_rows_that_come_between_two_looks_are_told_when_they_are_planned(watched):
    """Their micro-batch may hang: then nothing is told for as long as it runs."""
    assert watched.look(0.0, 10) == [{"t": {0: 0}}]
    assert watched.look(0.5, 5_000) == [{"t": {0: 4_990}}]
    assert watched.told[-1]["lag"]["t"]["0"]["high"] == 4_990
    assert watched.look(0.1, 5_010, at=5_000) == []  # else it is told once a second
    assert watched.look(0.1, 5_010, at=5_010) == []
    assert watched.look(0.5, 5_010, at=5_010) == [{"t": {0: 0}}]


def test_a_query_that_reads_no_topic_any_more_tells_so(watched):
    """The last one was deleted, for example: it has no lag."""
    assert watched.look(0.0, 10, at=0) == [{"t": {0: 10}}]
    assert watched.look(1.1, None) == [{}]


def test_one_transaction_in_many_partitions_is_looked_up_in_a_few_of_them(now, monkeypatch, caplog):
    """Each look-up may take seconds, and no micro-batch is planned meanwhile; the others are counted."""
    asked = list[int]()
    monkeypatch.setattr(lag, "oldest_open_transaction", lambda client, topic, partition: asked.append(partition) or "x")
    watch = lag_watch({"t": dict.fromkeys(range(1000), 9)})
    for seconds in (0, 61, 10, 10):
        now.s += seconds
        watch.watch({"t": dict.fromkeys(range(1000), 0)})
    assert asked == [0, 1, 2] and len(caplog.messages) == 4
    assert "997 more partitions" in caplog.text


def test_a_partition_is_held_while_its_end_stands_still_below_the_high_watermark(now):
    """For as long as a transaction is open the time grows, and begins anew behind it; an idle one is not held."""
    watch, ends = lag_watch({"t": {0: 9, 1: 4}}), {"t": {0: 6, 1: 4}}
    for seconds, end, held_ms in ((0, 6, 0), (2, 6, 2000), (2, 7, 0), (2, 7, 2000), (2, 9, 0)):
        now.s += seconds
        ends["t"][0] = end
        watch.watch(ends)
        report = watch.report({"t": {0: 2, 1: 4}}, ends, losses=5)
        assert report["lag"]["t"]["0"] == {"stable": end - 2, "high": 7, "heldMs": held_ms}
        assert report["lag"]["t"]["1"] == {"stable": 0, "high": 0, "heldMs": 0}
        assert report["losses"] == 5
