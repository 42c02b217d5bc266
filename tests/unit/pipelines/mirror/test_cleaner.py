"""The cleaner of the map without a cluster: what it deletes, and that it is in nobody's way."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.checkpoint.offset_log import Position
from spark_eos.errors import EosError
from spark_eos.pipelines.mirror import cleaner, offset_map
from spark_eos.pipelines.mirror.cleaner import MapCleaner, clean_map
from spark_eos.pipelines.mirror.entries import split_key
from spark_eos.pipelines.mirror.plan import Targets
from spark_eos.pipelines.mirror.source import MirrorStreamReader
from spark_eos.source.questions import Topics
from tests.support.models.map_logs import CLIENT, ORIGIN, MapLog, reading
from tests.unit.pipelines.mirror.test_offset_map import HERE, WholeMap, logs


@given(logs(), st.integers(0, 60))
def test_what_the_source_has_passed_is_deleted(log, begin):
    """And nothing else: not the newest entry, nor the last one with rows, nor other partitions'. What the source still
    has is translated as before. A second time, nothing is left to do."""
    # A log never starts earlier than it did when a cleaner deleted something.
    deleted = [split_key(key)[1] for rows in log.rows for _, key, value in rows if value is None]
    begin = max([begin, *(first + 1 for first in deleted)])
    before = WholeMap.from_log(log, HERE)
    passed = [entry for entry in before.entries[:-1] if entry.end <= begin]
    if not any(entry.runs for entry in before.entries if entry.first >= begin or entry is before.entries[-1]):
        filled = [number for number, entry in enumerate(passed) if entry.runs]
        passed = passed[: filled[-1]] if filled else passed
    wanted = [entry.first for entry in passed]
    rows = [len(rows) for rows in log.rows]
    topics = {
        name: SimpleNamespace(id=id_, partitions=n) for name, id_, n in (("in", "id", 4), ("map", "m", len(rows)))
    }

    def produce(_topic, _value, key, partition, on_delivery):
        log.put(partition, (key, None))
        on_delivery(None, None)

    with pytest.MonkeyPatch.context() as patch, reading(log, [ORIGIN]):
        patch.setattr(cleaner, "cluster_id", lambda _: HERE.cluster)
        patch.setattr(cleaner, "describe_topics", lambda *_, **__: topics)
        patch.setattr(cleaner, "begin_offsets", lambda *_: {"in": {3: begin}})
        patch.setattr(offset_map, "Producer", lambda _: SimpleNamespace(produce=produce, flush=lambda _: 0))
        patch.setattr(cleaner, "_AT_ONCE", 2)
        assert [clean_map(CLIENT, CLIENT, "map") for _ in range(2)] == [len(wanted), 0]
    written = [key for number, after in enumerate(log.rows) for _, key, _ in after[rows[number] :]]
    assert sorted(split_key(key)[1] for key in written) == wanted
    after = WholeMap.from_log(log, HERE)
    assert after.entries == [entry for entry in before.entries if entry.first not in wanted]
    for offset in range(begin, 60) if not before.doubled else ():
        # Right before a gap, what ended there is gone; whoever is there would miss what is in the gap.
        gap = any(entry.end == offset for entry in passed) and all(entry.first != offset for entry in before.entries)
        assert after.place(offset) == before.place(offset) or (gap and after.place(offset) is None)


def test_nobody_waits_for_it(monkeypatch):
    """It goes on in the background, once at a time, until the query ends."""
    begun, let = threading.Event(), threading.Event()
    ends: list[bool] = []

    def endless(source, target, map_topic, stopped):
        begun.set()
        let.wait(60)
        ends.append(stopped())
        return 0

    monkeypatch.setattr(cleaner, "clean_map", endless)
    monkeypatch.setattr(cleaner, "EVERY_S", 0.0)
    monkeypatch.setattr(cleaner, "_STOP_S", 0.0)
    own = MapCleaner(CLIENT, CLIENT, "map")
    own.start_if_due()
    assert begun.wait(60)
    begun.clear()
    own.start_if_due()
    assert not begun.is_set()
    own.stop()
    let.set()
    own.finish()
    assert ends == [True]
    own.start_if_due()
    assert not begun.is_set()


def test_it_ends_with_the_query(monkeypatch):
    """Spark stops the reader."""
    monkeypatch.setattr(cleaner, "clean_map", lambda *_: 0)
    ends = SimpleNamespace(kafka=CLIENT.properties, fail_on_data_loss=True)
    reader = MirrorStreamReader(SimpleNamespace(source=ends, sink=ends, targets=Targets(), written=None, cores=None))
    reader.stop()
    reader._targets = SimpleNamespace(prepare=lambda *_: None)
    reader._watch = SimpleNamespace(topics=lambda: Topics({"in": [0]}, {}))
    reader._prepare([], Position({"in": {0: 1}}))
    working = reader._cleaner._thread
    reader.stop()
    assert not working.is_alive()
    reader._cleaner._next_s = 0.0
    reader._prepare([], Position({"in": {0: 1}}))
    assert reader._cleaner._thread is working


@pytest.mark.parametrize("error", [EosError("EOS_X", "no.", hint="do."), ValueError("what")])
def test_a_failure_is_a_warning(error, monkeypatch, caplog):
    """Whatever it is; and the next time comes."""

    def failing(*_):
        raise error

    monkeypatch.setattr(cleaner, "clean_map", failing)
    monkeypatch.setattr(cleaner, "EVERY_S", 0.0)
    own = MapCleaner(CLIENT, CLIENT, "map")
    for _ in range(2):
        own.start_if_due()
        own.finish()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert all("the offset map map was not cleaned" in record.getMessage() for record in caplog.records)


def test_it_can_be_stopped_anywhere(monkeypatch):
    """What is deleted by then is deleted; the rest is there."""
    log = MapLog()
    log.put(0, (b'{"cluster":"c","topic":"id","partition":0,"first":0}', b'{"end":1,"id":"o","runs":[]}'))
    log.put(0, (b'{"cluster":"c","topic":"id","partition":0,"first":1}', b'{"end":2,"id":"o","runs":[]}'))
    place = b'{"cluster":"c","topic":"id","partition":0'
    with reading(log):
        part = cleaner.MapPartition(CLIENT, "map", 0)
        assert list(cleaner._passed(part, {place: 9}, lambda: False)) == [log.rows[0][0][1]]
        assert list(cleaner._passed(part, {place: 9}, lambda: True)) == []
