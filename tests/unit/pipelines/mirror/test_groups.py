"""Groups that must not be moved, by answers that are put in place of the clusters'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.groups import ConsumerGroup
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.pipelines.mirror import offsets
from spark_eos.pipelines.mirror.entries import MapEntry, OffsetRun, SourcePartition, partition_of
from spark_eos.pipelines.mirror.offset_map import Origin
from spark_eos.pipelines.mirror.offsets import GroupMover
from tests.support.models.map_logs import CLUSTER, MapLog, reading

MAP = "map"
SOURCE, TARGET = (broker_client(KafkaProperties({"bootstrap.servers": f"127.0.0.1:{port}"})) for port in (1, 2))
ORIGINS = [Origin(into, f"{into}-id", "in", "id", (CLUSTER,)) for into in ("out", "new")]


def entry(first: int, end: int, target: int = 0, partition: int = 0, into: str = "out", rows: bool = True) -> MapEntry:
    runs = (OffsetRun(first, target, end - first),) if rows else ()
    return MapEntry(SourcePartition(CLUSTER, "id", partition), "in", first, end, into, f"{into}-id", runs)


class Clusters:
    """A source topic, in, and targets that it was mirrored to. ``begins``: by topic, where logs start; ``ends``: of
    targets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, committed: Mapping[int, int] | Iterator[Mapping[int, int]]):
        self.log, self.moved = MapLog(9), {}
        self.begins, self.ends = {"in": 0, "out": 0, "new": 0}, {"in": 99, "out": 99, "new": 99}
        self._committed = committed
        self.origins = ORIGINS[:1]
        topics = self.topics = {name: SimpleNamespace(id=f"{name}-id", partitions=4) for name in ("out", "new")}
        topics["in"] = SimpleNamespace(id="id", partitions=4)
        monkeypatch.setattr(offsets, "describe_topics", lambda _, names, **__: {n: topics[n] for n in names})
        monkeypatch.setattr(offsets, "begin_offsets", lambda _, places: self._at(self.begins, places))
        monkeypatch.setattr(offsets, "end_offsets", lambda _, places, *__: self._at(self.ends, places))
        topics[MAP] = SimpleNamespace(id="map-id", partitions=9)
        monkeypatch.setattr(ConsumerGroup, "active_members", lambda *_, **__: [])
        monkeypatch.setattr(offsets, "cluster_id", lambda _: CLUSTER)
        monkeypatch.setattr(offsets, "origins_from", lambda *_: self.origins)
        monkeypatch.setattr(ConsumerGroup, "committed", lambda _, places: self._commits(places))
        monkeypatch.setattr(ConsumerGroup, "commit", lambda _, moved: self.moved.update(moved))

    def _at(self, known: Mapping[str, int], places: Mapping[str, Any]) -> dict[str, dict[int, int]]:
        ends = {MAP: {p: len(rows) for p, rows in enumerate(self.log.rows)}}
        return {
            name: {p: ends[name][p] if name in ends else known[name] for p in numbers}
            for name, numbers in places.items()
        }

    def _commits(self, places: Any) -> dict[str, Mapping[int, int]]:
        if places:
            return {}
        return {"in": self._committed if isinstance(self._committed, Mapping) else next(self._committed)}

    def move(self) -> dict[str, dict[int, int]]:
        with reading(self.log, self.origins):
            GroupMover("g", SOURCE, TARGET, MAP).move(apply=True)
        return self.moved

    def refusal(self) -> EosError:
        with pytest.raises(EosError) as caught:
            self.move()
        assert self.moved == {}
        return caught.value


def test_a_group_that_was_moved_and_has_gone_on_at_the_target_meanwhile(monkeypatch):
    """By another command, while this one has stalled: it would read again what it has read there."""
    clusters = Clusters(monkeypatch, {0: 3})
    clusters.log.write(entry(0, 9))
    found = iter([{}, {"out": {0: 7}}])

    def committed(group, places):
        return next(found) if group.client is TARGET else {"in": {0: 3}}

    monkeypatch.setattr(ConsumerGroup, "committed", committed)
    assert clusters.refusal().condition == "EOS_MIRROR_GROUP_REFUSED"
    found = iter([{"out": {0: 5}}, {"out": {0: 7}}])
    with (
        reading(clusters.log, clusters.origins),
        pytest.raises(EosError, match=r"MIRROR_GROUP_REFUSED.*the target"),
    ):
        GroupMover("g", SOURCE, TARGET, MAP).move(apply=True, overwrite=True)
    assert clusters.moved == {}


def test_a_group_that_has_read_at_the_target(monkeypatch):
    """Its position there is not overwritten, unless somebody asks for that."""
    clusters = Clusters(monkeypatch, {0: 3})
    clusters.log.write(entry(0, 9))
    there = {TARGET: {"out": {0: 7}}, SOURCE: {"in": {0: 3}}}
    monkeypatch.setattr(ConsumerGroup, "committed", lambda group, _: there[group.client])
    assert clusters.refusal().entry == "EOS_MIRROR_GROUP_REFUSED.has_offsets"
    with reading(clusters.log, clusters.origins):
        GroupMover("g", SOURCE, TARGET, MAP).move(apply=True, overwrite=True)
    assert clusters.moved == {"out": {0: 3}}


def test_a_group_that_has_gone_on_at_the_source_is_not_deleted_there(monkeypatch):
    """Somebody reads there again, since it was moved."""
    clusters = Clusters(monkeypatch, iter([{0: 3}, {0: 3}, {0: 4}]))
    clusters.log.write(entry(0, 9))
    with (
        reading(clusters.log, clusters.origins),
        pytest.raises(EosError, match=r"MIRROR_GROUP_REFUSED.*not deleted") as caught,
    ):
        GroupMover("g", SOURCE, TARGET, MAP).move(apply=True, delete=True)
    assert clusters.moved == {"out": {0: 3}}
    assert "Nothing was changed" not in str(caught.value)


@pytest.mark.parametrize("refused", ["EOS_KAFKA_REFUSED", "EOS_KAFKA_UNREACHABLE.brokers", "EOS_GROUP_ACTIVE"])
def test_what_fails_after_the_group_was_moved(refused, monkeypatch):
    """No right to delete, no answer, a consumer that has come back: the error says what is done and what is not."""
    clusters = Clusters(monkeypatch, {0: 3})
    clusters.log.write(entry(0, 9))
    fields = dict.fromkeys(("servers", "what", "answer", "bootstrap_servers", "reason"), "x")
    members = dict.fromkeys(("group", "count", "at", "members", "about", "otherwise"), "x")

    def fail(*_: Any, **__: Any) -> Any:
        raise stop(refused, **fields, **members, waited_s=1.0)

    if "ACTIVE" in refused:
        monkeypatch.setattr(ConsumerGroup, "active_members", lambda *_, **__: fail() if clusters.moved else [])
    monkeypatch.setattr(ConsumerGroup, "delete", fail)
    with (
        reading(clusters.log, clusters.origins),
        pytest.raises(EosError, match=r"was moved.*not deleted") as caught,
    ):
        GroupMover("g", SOURCE, TARGET, MAP).move(apply=True, delete=True)
    assert caught.value.entry == refused
    assert clusters.moved == {"out": {0: 3}}


def test_a_group_that_commits_meanwhile(monkeypatch):
    """What it commits after it was looked at would be read twice: nothing is committed for it at the target."""
    clusters = Clusters(monkeypatch, iter([{0: 3}, {0: 4}]))
    clusters.log.write(entry(0, 9))
    assert clusters.refusal().condition == "EOS_MIRROR_GROUP_REFUSED"


def test_rows_that_have_expired_at_the_target(monkeypatch):
    """By a shorter retention than the source's: an offset before the log's start is one from which readers jump."""
    clusters = Clusters(monkeypatch, {0: 3})
    clusters.log.write(entry(0, 9))
    clusters.begins["out"] = 4
    assert clusters.refusal().condition == "EOS_MIRROR_GROUP_REFUSED"
    clusters.begins["out"] = 3
    assert clusters.move() == {"out": {0: 3}}


@pytest.mark.parametrize("at", [1, 2])
def test_rows_that_were_never_mirrored_and_are_still_to_be_read(at, monkeypatch):
    """A mirror that was begun anew has left a gap. Where the source has lost it, too, nobody misses it."""
    clusters = Clusters(monkeypatch, {0: at})
    clusters.log.write(entry(0, 2), entry(5, 9, 2))
    assert "Offsets 2 to 5" in clusters.refusal().message
    clusters.begins["in"] = 5
    assert clusters.move() == {"out": {0: at}}


def test_a_group_behind_a_gap(monkeypatch):
    """It is none of its business any more."""
    clusters = Clusters(monkeypatch, {0: 6})
    clusters.log.write(entry(0, 2), entry(5, 9, 2))
    assert clusters.move() == {"out": {0: 3}}


def test_partitions_that_went_to_different_topics(monkeypatch):
    """By two mirrors with two prefixes: a reader of either would lack the other's."""
    clusters = Clusters(monkeypatch, {0: 1, 1: 1})
    clusters.origins = ORIGINS
    clusters.log.write(entry(0, 9), entry(0, 9, partition=1, into="new"))
    assert "different topics" in clusters.refusal().message


@pytest.mark.parametrize("apply", [False, True])
def test_topics_that_went_to_one_topic(apply, monkeypatch):
    """By two mirrors whose prefixes make one name: one of two offsets skips rows, or has them read again."""
    clusters = Clusters(monkeypatch, {0: 5})
    clusters.topics["also"] = SimpleNamespace(id="also-id", partitions=4)
    clusters.origins = [*ORIGINS[:1], Origin("out", "out-id", "also", "also-id", (CLUSTER,))]
    also = MapEntry(SourcePartition(CLUSTER, "also-id", 0), "also", 0, 9, "out", "out-id", (OffsetRun(0, 40, 9),))
    clusters.log.write(entry(0, 9), also)
    at = {"in": {0: 5}, "also": {0: 5}}
    monkeypatch.setattr(ConsumerGroup, "committed", lambda _, places: {} if places else at)
    with (
        reading(clusters.log, clusters.origins),
        pytest.raises(EosError, match=r"out-0.*: 45 by also, 5 by in") as caught,
    ):
        GroupMover("g", SOURCE, TARGET, MAP).move(apply=apply)
    assert (caught.value.entry, clusters.moved) == ("EOS_MIRROR_GROUP_REFUSED.joined_topics", {})
    at |= {"in": {0: 9}, "also": {0: 0}}
    clusters.log.write(entry(0, 9, target=31))
    assert clusters.move() == {"out": {0: 40}}


def test_a_partition_of_which_the_map_has_no_row(monkeypatch):
    """Only transactions that were aborted: the group goes on behind what the target has, which is not the mirror's; if
    a row is mirrored meanwhile, at that."""
    clusters = Clusters(monkeypatch, {0: 5})
    clusters.log.write(entry(0, 5, rows=False))
    clusters.ends["out"] = 7
    assert clusters.move() == {"out": {0: 7}}
    ends = offsets.end_offsets
    number = partition_of(SourcePartition(CLUSTER, "id", 0), 9)

    def late(client: Any, places: Any, *more: Any) -> Any:
        found = ends(client, places, *more)
        if "out" in places and len(clusters.log.rows[number]) == 1:
            clusters.log.write(entry(5, 6, 7))
            found["out"][0] = 8
        return found

    monkeypatch.setattr(offsets, "end_offsets", late)
    assert clusters.move() == {"out": {0: 7}}


def test_a_group_before_ranges_without_rows(monkeypatch):
    """What is before the map's beginning was never mirrored."""
    clusters = Clusters(monkeypatch, {0: 2})
    clusters.log.write(entry(3, 5, rows=False))
    assert clusters.refusal().condition == "EOS_MIRROR_GROUP_REFUSED"


def test_a_partition_that_is_not_mirrored_yet(monkeypatch):
    """Its rows will come behind what the target has now, and a group that has read all of them would read them again;
    where the source has none any more, none will come."""
    clusters = Clusters(monkeypatch, {0: 5})
    clusters.begins["in"], clusters.ends["in"] = 3, 5
    clusters.ends["out"] = 7
    assert clusters.refusal().condition == "EOS_MIRROR_GROUP_REFUSED"
    clusters.begins["in"] = 5
    assert clusters.move() == {"out": {0: 7}}


def test_a_transaction_of_the_mirror_that_is_open_while_the_map_has_no_row(monkeypatch):
    """It may have rows of before the group's offset, behind what the target has that is stable: only its entries
    tell."""
    clusters = Clusters(monkeypatch, {0: 5})
    clusters.log.write(entry(0, 3, rows=False))
    clusters.begins["in"] = clusters.ends["in"] = clusters.ends["out"] = 5
    number, ends = partition_of(SourcePartition(CLUSTER, "id", 0), 9), offsets.end_offsets
    open_ones = [entry(3, 5, 5)]

    def unstable(client: Any, places: Any, *more: Any) -> Any:
        found = ends(client, places, *more)
        if MAP in places:
            found[MAP][number] += len(open_ones)
        return found

    monkeypatch.setattr(offsets, "end_offsets", unstable)
    assert clusters.refusal().condition == "EOS_MIRROR_GROUP_REFUSED"
    clusters.log.write(open_ones.pop())
    assert clusters.move() == {"out": {0: 7}}


def test_a_group_that_is_ahead_of_the_mirror_is_waited_for(monkeypatch):
    """Until the map has its offset."""
    clusters = Clusters(monkeypatch, {0: 5})
    clusters.log.write(entry(0, 3))

    def mirrored(seconds: float) -> Iterator[None]:
        yield
        clusters.log.write(entry(3, 6, 4))
        yield

    monkeypatch.setattr(offsets, "retrying", mirrored)
    assert clusters.move() == {"out": {0: 6}}
