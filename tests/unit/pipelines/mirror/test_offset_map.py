"""The offset map without a cluster: what is read of it translates as the whole of it would, and needs little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import KafkaError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.fetch import FetchResponse
from spark_eos.pipelines.mirror.entries import (
    MapEntry,
    OffsetRun,
    SourcePartition,
    TargetPosition,
    from_record,
    partition_of,
    to_record,
)
from spark_eos.pipelines.mirror.offset_map import METADATA, OffsetMap, OffsetMapWriter, Origin
from tests.support.models import map_memory
from tests.support.models.map_logs import CLUSTER, MAP, ORIGIN, MapLog, with_map
from tests.support.models.memory_clusters import id_of

ROOT = Path(__file__).parents[4]
ID, NEW_ID, OUT_ID = id_of("in"), id_of("in anew"), id_of("out")
HERE = SourcePartition(CLUSTER, ID, 3)
OFFSETS = range(60)


class WholeMap:
    """All entries of one partition of the source: a model of what is read of them, as simple as can be."""

    def __init__(self, entries: Iterable[MapEntry]) -> None:
        self.entries = sorted(entries, key=lambda entry: entry.first)
        self.runs = [(run, entry) for entry in self.entries for run in entry.runs]
        self.doubled = any(
            one.source + one.count > after.first for (one, entry), (_, after) in pairwise(self.runs) if after != entry
        ) or any(one.target + one.count > after.target for (one, _), (after, _) in pairwise(self.runs))

    @classmethod
    def from_log(cls, log: MapLog, source: SourcePartition) -> WholeMap:
        newest = {key: value for rows in log.rows for _, key, value in rows}
        entries = [from_record(key, value) for key, value in newest.items() if value is not None]
        return cls(entry for entry in entries if entry is not None and entry.source == source)

    def place(self, offset: int) -> TargetPosition | None:
        """None for what is not covered."""
        if not self.entries or self.doubled:
            return None
        if not any(entry.first <= offset <= entry.end for entry in self.entries):
            return None
        for run, entry in self.runs:
            if offset < run.source + run.count:
                return _place(entry, run.target + max(0, offset - run.source))
        if not self.runs:
            return None
        run, entry = self.runs[-1]
        return _place(entry, run.target + run.count)


def _place(entry: MapEntry, offset: int) -> TargetPosition:
    return TargetPosition(entry.target, entry.target_id, entry.source.partition, offset)


@st.composite
def ranges(draw: st.DrawFn, source: SourcePartition, at: int, target: int) -> list[MapEntry]:
    """One after the other, most of them without a hole between them; with rows or without."""
    found = []
    for _ in range(draw(st.integers(0, 8))):
        first = at + draw(st.sampled_from([0, 0, 0, 0, 2]))
        runs, at = [], first
        for _ in range(draw(st.integers(0, 2))):
            run = OffsetRun(at + draw(st.integers(0, 2)), target + draw(st.integers(0, 1)), draw(st.integers(1, 3)))
            at, target = run.source + run.count, run.target + run.count
            runs.append(run)
        at = max(at, first + 1) + draw(st.integers(0, 1))
        found.append(MapEntry(source, "in", first, at, "out", OUT_ID, tuple(runs)))
    return found


def _moved(entry: MapEntry, by: int) -> MapEntry:
    runs = tuple(OffsetRun(run.source, run.target + by, run.count) for run in entry.runs)
    return MapEntry(entry.source, "in", entry.first, entry.end, "out", OUT_ID, runs)


@st.composite
def logs(draw: st.DrawFn) -> MapLog:
    """What a mirror writes, with what else happens: repairs, a cleaner, mirrors that begin anew, other partitions."""
    log = MapLog(draw(st.sampled_from([1, 2, 9])))
    mine = draw(ranges(HERE, draw(st.integers(0, 5)), 0))
    log.write(*draw(ranges(SourcePartition(CLUSTER, ID, 4), 0, 0)))
    lost = 0
    for number, planned in enumerate(mine):
        mine[number] = _moved(planned, lost)
        log.write(mine[number])
        if draw(st.integers(0, 5)) == 0:  # a repair: the same range again, behind what was lost in the target
            lost += 10
            mine[number] = _moved(planned, lost)
            log.write(mine[number])
    for entry in mine[: draw(st.integers(0, max(0, len(mine) - 1)))] if draw(st.booleans()) else []:
        log.delete(entry)
    if draw(st.integers(0, 3)) == 0:
        log.write(*draw(ranges(HERE, draw(st.integers(0, 30)), 1_000)))
    if draw(st.booleans()):
        log.compact()
    return log


def test_a_mirror_that_began_within_ranges_without_rows():
    """Behind the last row, as it may: no row is there twice, whatever the ranges say of the offsets between rows."""
    log = MapLog(1)
    log.write(
        MapEntry(HERE, "in", 0, 80, "out", OUT_ID, (OffsetRun(0, 0, 80),)),
        MapEntry(HERE, "in", 80, 95, "out", OUT_ID, ()),
        MapEntry(HERE, "in", 95, 100, "out", OUT_ID, ()),
        MapEntry(HERE, "in", 85, 86, "out", OUT_ID, ()),
    )
    wanted = {79: 79, 80: 80, 93: 80, 98: 80, 100: 80}
    found = read(log, wanted).get(ID, 3)
    assert (found.doubled, found.begin, found.end, found.holes, found.targets) == (False, 0, 100, (), {OUT_ID: 80})
    assert {at: place and place.offset for at, place in found.positions.items()} == wanted
    log.write(MapEntry(HERE, "in", 86, 200, "out", OUT_ID, (OffsetRun(100, 81, 100),)))
    wanted |= {93: 81, 98: 81, 100: 81, 150: 131, 200: 181}
    found = read(log, wanted).get(ID, 3)
    assert not found.doubled
    assert {at: place and place.offset for at, place in found.positions.items()} == wanted | {80: 81}
    log.write(MapEntry(HERE, "in", 79, 81, "out", OUT_ID, (OffsetRun(79, 500, 1),)))
    assert read(log, wanted).get(ID, 3).doubled


@given(logs())
def test_what_is_read_translates_as_the_whole_map(log):
    """Every position, and every refusal, with what it says."""
    whole = WholeMap.from_log(log, HERE)
    map_ = read(log, OFFSETS)
    for offset in OFFSETS:
        wanted = whole.place(offset)
        if wanted is not None:
            assert map_.translate("in", 3, offset) == wanted
            continue
        with pytest.raises(KafkaError, match="EOS_MIRROR_GROUP_REFUSED") as caught:
            map_.translate("in", 3, offset)
        assert ("mirrored more than once" in caught.value.message) is whole.doubled
        end = max((entry.end for entry in whole.entries), default=0)
        span = f"has {whole.entries[0].first} to {end}." if whole.entries else "has nothing."
        assert span in caught.value.message


def entry(first: int, end: int, target: int = 0, source: SourcePartition = HERE, into: str = "out") -> MapEntry:
    """A range that has a row at each offset."""
    return MapEntry(source, "in", first, end, into, id_of(into), (OffsetRun(first, target, end - first),))


def read(log: MapLog, offsets: Iterable[int], *known: Origin, **more: object) -> OffsetMap:
    return OffsetMap.read(with_map(log, *known or [ORIGIN]), CLUSTER, {("in", 3): list(offsets)}, MAP, **more)


ONCE = [entry(0, 2), entry(2, 4, 2), entry(4, 6, 4)]


@pytest.mark.parametrize(
    "entries",
    [[*ONCE, entry(0, 2, 4)], [*ONCE, entry(2, 4, 6)], [entry(0, 4), entry(2, 6, 4)], [entry(0, 4), entry(4, 8, 2)]],
    ids=["the first again", "one in between again", "some again behind all", "some over others"],
)
def test_rows_that_were_mirrored_twice_are_not_translated(entries):
    """A new entry of the same cuts has taken the place of the old one; but no mirror writes what it reads later before
    the rest, nor leaves a range for the next one's rows. What comes behind all of it is as it was."""
    log = MapLog()
    log.write(*entries)
    assert read(log, range(9)).get(ID, 3).doubled


def test_rows_that_went_to_several_topics():
    """Before the change, no topic has all that a reader has not read; behind it, one has."""
    log = MapLog()
    log.write(entry(0, 2), entry(2, 4, 2), entry(4, 6, 0, into="new"), entry(6, 8, 2, into="new"))
    found = read(log, range(9)).get(ID, 3)
    assert [offset for offset in range(9) if found.positions[offset] is not None] == [4, 5, 6, 7, 8]
    assert found.positions[4] == TargetPosition("new", id_of("new"), 3, 0)
    assert found.targets == {OUT_ID: 4, id_of("new"): 8}


def test_ranges_without_a_row_say_nothing_of_the_target():
    """Where a reader goes on there is not in the map: the target may have had records before."""
    log = MapLog()
    log.write(MapEntry(HERE, "in", 3, 9, "out", OUT_ID, ()))
    found = read(log, range(11)).get(ID, 3)
    assert (found.rowless, set(found.positions.values()), found.targets) == (True, {None}, {})
    assert [offset for offset in range(11) if found.reaches(offset)] == [3, 4, 5, 6, 7, 8, 9]


def test_other_clusters_and_ids():
    """A map holds those of several sources; a name that two topics had, one after the other, needs the id."""
    log = MapLog()
    log.write(entry(0, 1), entry(0, 1, 50, SourcePartition(CLUSTER, NEW_ID, 3)))
    log.write(entry(0, 1, 70, SourcePartition("another", ID, 3)))
    map_ = read(log, [0, 7], ORIGIN, Origin("out", OUT_ID, "in", NEW_ID, (CLUSTER,)))
    assert map_.translate("in", 3, 0, topic_id=NEW_ID).offset == 50
    for offset, id_ in ((0, None), (7, ID), (0, "unknown")):
        with pytest.raises(KafkaError, match="EOS_MIRROR_GROUP_REFUSED"):
            map_.translate("in", 3, offset, topic_id=id_)
    assert read(log, [0], ids={"in": NEW_ID}).translate("in", 3, 0).offset == 50
    with pytest.raises(ValueError, match="not wanted"):
        map_.translate("in", 3, 1, topic_id=NEW_ID)


def test_only_the_partition_that_has_it_is_read():
    """Of the map's topic; and of what it has, the one entry that is needed."""
    log = MapLog()
    log.write(*(entry(first, first + 1, first) for first in range(10)))
    log.write(*(entry(0, 1, source=SourcePartition(CLUSTER, ID, p)) for p in range(4, 40)))
    assert read(log, [7]).translate("in", 3, 7).offset == 7
    number = partition_of(HERE, 9)
    (at,) = (at for at, key, _ in log.rows[number] if key == to_record(entry(7, 8))[0])
    assert [each for each in log.fetched if each[0] != METADATA] == [(number, 0), (number, at)]


class Cleaned(MapLog):
    """After each answer, one of the ``later`` entries is written, and the broker removes what had its key."""

    def __init__(self, *later: MapEntry) -> None:
        super().__init__()
        self.later = list(later)

    def fetch(self, partition: int, offset: int, max_bytes: int) -> FetchResponse:
        answer = super().fetch(partition, offset, max_bytes)
        if self.later and partition == partition_of(HERE, len(self.rows)):
            self.write(self.later.pop(0))
            self.compact()
        return answer


def test_a_record_that_the_broker_removes_meanwhile():
    """As a newer one has its key: the map is read once more, but not for ever."""
    log = Cleaned(entry(0, 2, 5))
    log.write(entry(0, 2))
    assert read(log, [1]).translate("in", 3, 1).offset == 6
    log = Cleaned(*(entry(0, 2, target) for target in range(5, 20)))
    log.write(entry(0, 2))
    with pytest.raises(KafkaError, match="EOS_MIRROR_MAP_UNREADABLE"):
        read(log, [1])


@pytest.mark.parametrize(
    ("what", "found"),
    [("read", len(map_memory.SOURCES) * (map_memory.EACH - 7)), ("clean", map_memory.Entries.count * 9 // 10)],
)
def test_many_entries_need_little_memory(what, found):
    """Though all of them count: to translate positions of all partitions, to delete most of them. (As objects,
    100,000 took 140 MiB.)"""
    told = subprocess.run(
        [sys.executable, "-m", "tests.support.models.map_memory", what],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(told.stdout)["found"] == found
    assert json.loads(told.stdout)["mib"] < 14


def test_properties_that_are_for_other_producers():
    """Queries ignore them, and an idempotent producer of librdkafka refuses them."""
    kafka = KafkaProperties({"bootstrap.servers": "127.0.0.1:1", "retries": "0"})
    assert isinstance(OffsetMapWriter(BrokerClient(kafka), "map"), OffsetMapWriter)
