"""The cleaner of the map without a cluster: what it deletes, and that it is in nobody's way."""

from __future__ import annotations

import threading
from itertools import chain, repeat
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.checkpoint.offset_log import Position
from spark_eos.errors import EosError
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.pipelines.mirror import cleaner
from spark_eos.pipelines.mirror.cleaner import MapCleaner, clean_map
from spark_eos.pipelines.mirror.entries import split_key
from spark_eos.pipelines.mirror.plan import Targets
from spark_eos.pipelines.mirror.source import MirrorStreamReader
from spark_eos.source.questions import Topics
from tests.support.models.map_logs import CLUSTER, MAP, ORIGIN, MapLog
from tests.support.models.memory_clusters import MemoryClusters
from tests.unit.pipelines.mirror.test_offset_map import HERE, WholeMap, entry, logs


def mirrored(clusters: MemoryClusters, log: MapLog, begin: int) -> tuple[BrokerClient, BrokerClient, str]:
    """Clients of source and target, and the map; the source's partitions begin at this offset."""
    clusters[CLUSTER].make("in", 4).begins = [begin] * 4
    clusters["target"].topics[MAP] = log
    log.write(ORIGIN)
    return clusters[CLUSTER], clusters["target"], MAP


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
    with MemoryClusters().installed() as clusters:
        ends = mirrored(clusters, log, begin)
        rows = [len(rows) for rows in log.rows]
        assert [clean_map(*ends) for _ in range(2)] == [len(wanted), 0]
    written = [key for number, after in enumerate(log.rows) for _, key, _ in after[rows[number] :]]
    assert sorted(split_key(key)[1] for key in written) == wanted
    after = WholeMap.from_log(log, HERE)
    assert after.entries == [entry for entry in before.entries if entry.first not in wanted]
    for offset in range(begin, 60) if not before.doubled else ():
        # Right before a gap, what ended there is gone; whoever is there would miss what is in the gap.
        gap = any(entry.end == offset for entry in passed) and all(entry.first != offset for entry in before.entries)
        assert after.place(offset) == before.place(offset) or (gap and after.place(offset) is None)


@pytest.mark.parametrize(("looks", "deleted"), [(0, 0), (4, 0), (5, 1), (9, 2)])
def test_it_can_be_stopped_anywhere(clusters, looks, deleted):
    """What is deleted by then is deleted; the rest is there. ``looks``: how often it goes on when it asks."""
    log = MapLog(1)
    log.write(entry(0, 1), entry(1, 2), entry(2, 3))
    ends = mirrored(clusters, log, 9)
    assert clean_map(*ends, chain([False] * looks, repeat(True)).__next__) == deleted
    assert len(WholeMap.from_log(log, HERE).entries) == 3 - deleted


@pytest.fixture
def often(monkeypatch) -> None:
    """It is due at once, and nobody waits for its end."""
    monkeypatch.setattr(cleaner, "EVERY_S", 0.0)
    monkeypatch.setattr(cleaner, "_STOP_S", 0.0)


@pytest.mark.usefixtures("often")
def test_nobody_waits_for_it(clusters):
    """It goes on in the background, once at a time, until the query ends."""
    begun, let = threading.Event(), threading.Event()

    def before(*_: object) -> None:
        begun.set()
        let.wait(60)

    log = MapLog(1)
    log.write(entry(0, 1), entry(1, 2))
    own = MapCleaner(*mirrored(clusters, log, 9))
    clusters[CLUSTER].before = before
    own.start_if_due()
    assert begun.wait(60)
    begun.clear()
    own.start_if_due()
    assert not begun.is_set()
    own.stop()
    let.set()
    own.finish()
    assert len(WholeMap.from_log(log, HERE).entries) == 2
    begun.clear()
    own.start_if_due()
    own.finish()
    assert not begun.is_set()


def test_it_ends_with_the_query(clusters):
    """Spark stops the reader, whether it has begun or not."""
    requests: list[str] = []
    clusters[CLUSTER].before = lambda request, _: requests.append(request)
    ends = SimpleNamespace(kafka=clusters[CLUSTER].properties, fail_on_data_loss=True)
    reader = MirrorStreamReader(SimpleNamespace(source=ends, sink=ends, targets=Targets(), written=None, cores=None))
    reader.stop()
    reader._targets = SimpleNamespace(prepare=lambda *_: None)
    reader._watch = SimpleNamespace(topics=lambda: Topics({"in": [0]}, {}))
    reader._prepare([], Position({"in": {0: 1}}))
    reader.stop()
    assert requests
    assert "eos map cleaner" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("error", [EosError("EOS_X", "no.", hint="do."), ValueError("what")])
def test_a_failure_is_a_warning(error, clusters, caplog):
    """Whatever it is; and the next time comes."""

    def failing(*_: object) -> None:
        raise error

    own = MapCleaner(*mirrored(clusters, MapLog(), 9))
    clusters[CLUSTER].before = failing
    for _ in range(2):
        own.start_if_due()
        own.finish()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert all("the offset map map was not cleaned" in record.getMessage() for record in caplog.records)
