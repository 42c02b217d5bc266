"""Groups that must not be moved, by answers that are put in place of the clusters'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.groups import ConsumerGroup
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.pipelines.mirror import offsets
from spark_eos.pipelines.mirror.entries import MapEntry, OffsetRun, SourcePartition, partition_of
from spark_eos.pipelines.mirror.offset_map import Origin
from spark_eos.pipelines.mirror.offsets import GroupMove, GroupMover
from tests.support.models.map_logs import CLUSTER, MapLog, reading

MAP = "map"
SOURCE, TARGET = (broker_client(KafkaProperties({"bootstrap.servers": f"127.0.0.1:{port}"})) for port in (1, 2))
ORIGINS = [Origin(into, f"{into}-id", "in", "id", (CLUSTER,)) for into in ("out", "new")]


def entry_of(
    first: int, end: int, target: int = 0, partition: int = 0, into: str = "out", rows: bool = True
) -> MapEntry:
    runs = (OffsetRun(first, target, end - first),) if rows else ()
    return MapEntry(SourcePartition(CLUSTER, "id", partition), "in", first, end, into, f"{into}-id", runs)


class Clusters:
    """A source topic, in, and targets that it was mirrored to. ``begins``: by topic, where logs start; ``ends``: of
    targets. ``at``: what the group has committed on each side, each time that somebody asks, and the last for good;
    ``busy``: the sides on which it has members."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *committed: int):
        self.log, self.moved, self.deleted = MapLog(9), {}, {}
        self.begins, self.ends = {"in": 0, "out": 0, "new": 0}, {"in": 99, "out": 99, "new": 99}
        self.at = {SOURCE: [{"in": {0: offset}} for offset in committed], TARGET: [{}]}
        self.busy: set[BrokerClient] = set()
        self.origins = ORIGINS[:1]
        topics = self.topics = {name: SimpleNamespace(id=f"{name}-id", partitions=4) for name in ("out", "new")}
        topics["in"] = SimpleNamespace(id="id", partitions=4)
        monkeypatch.setattr(offsets, "describe_topics", lambda _, names, **__: {n: topics[n] for n in names})
        monkeypatch.setattr(offsets, "begin_offsets", lambda _, places: self._at(self.begins, places))
        monkeypatch.setattr(offsets, "end_offsets", lambda _, places, *__: self._at(self.ends, places))
        topics[MAP] = SimpleNamespace(id="map-id", partitions=9)
        monkeypatch.setattr(ConsumerGroup, "active_members", lambda of, **_: ["x"] if of.client in self.busy else [])
        monkeypatch.setattr(offsets, "cluster_id", lambda _: CLUSTER)
        monkeypatch.setattr(offsets, "origins_from", lambda *_: self.origins)
        monkeypatch.setattr(ConsumerGroup, "committed", lambda group, *_: self._committed(group.client))
        monkeypatch.setattr(ConsumerGroup, "commit", lambda _, moved: self.moved.update(moved))
        monkeypatch.setattr(ConsumerGroup, "delete", lambda _, places: self.deleted.update(places))

    def _at(self, known: Mapping[str, int], places: Mapping[str, Any]) -> dict[str, dict[int, int]]:
        ends = {MAP: {p: len(rows) for p, rows in enumerate(self.log.rows)}}
        return {
            name: {p: ends[name][p] if name in ends else known[name] for p in numbers}
            for name, numbers in places.items()
        }

    def _committed(self, side: BrokerClient) -> Mapping[str, Mapping[int, int]]:
        return self.at[side].pop(0) if len(self.at[side]) > 1 else self.at[side][0]

    def move(self, *, apply: bool = True, **options: Any) -> GroupMove:
        with reading(self.log, self.origins):
            return GroupMover("g", SOURCE, TARGET, MAP).move(apply=apply, **options)

    def refusal(self, **options: bool) -> EosError:
        with pytest.raises(EosError) as caught:
            self.move(**options)
        assert (self.moved, self.deleted) == ({}, {})
        return caught.value


@pytest.mark.parametrize(
    ("source", "target", "busy", "overwrite", "entry"),
    [
        ([3], [7], (), False, "EOS_MIRROR_GROUP_REFUSED.has_offsets"),
        ([3], [{}, 7], (), False, "EOS_MIRROR_GROUP_REFUSED.has_offsets"),
        ([3], [5, 7], (), True, "EOS_MIRROR_GROUP_REFUSED.moves"),
        ([3, 4], [{}], (), False, "EOS_MIRROR_GROUP_REFUSED.moves"),
        ([3], [{}], (SOURCE,), False, "EOS_GROUP_ACTIVE"),
        ([3], [{}], (TARGET,), False, "EOS_GROUP_ACTIVE"),
        ([{"other": {0: 3}}], [{}], (), False, "EOS_GROUP_UNSUITABLE.mirror"),
    ],
    ids=[
        "it has read at the target",
        "by another command, it was moved and has gone on meanwhile",
        "it has gone on, and what it had there is overwritten",
        "it commits at the source meanwhile",
        "it has members at the source",
        "it has members at the target",
        "nothing that it reads is mirrored",
    ],
)
def test_a_group_that_is_not_moved(source, target, busy, overwrite, entry, monkeypatch):
    """It would read again what it has read on either side, or lose what it commits later."""
    clusters = Clusters(monkeypatch)
    clusters.log.write(entry_of(0, 9))
    clusters.at[SOURCE] = [{"in": {0: at}} if isinstance(at, int) else at for at in source]
    clusters.at[TARGET] = [{"out": {0: at}} if isinstance(at, int) else at for at in target]
    clusters.busy = set(busy)
    assert clusters.refusal(overwrite=overwrite).entry == entry


def test_a_group_that_is_moved_and_deleted(monkeypatch):
    """Its position at the target is overwritten, as somebody asks for that; at the source, its offsets in topics that
    are not mirrored stay."""
    clusters = Clusters(monkeypatch)
    clusters.log.write(entry_of(0, 9))
    clusters.at = {SOURCE: [{"in": {0: 3}, "other": {0: 4}}], TARGET: [{"out": {0: 7}}]}
    assert clusters.move(overwrite=True, delete=True).not_mirrored == ("other",)
    assert (clusters.moved, clusters.deleted) == ({"out": {0: 3}}, {"in": [0]})


@pytest.mark.parametrize(
    "refused",
    ["EOS_KAFKA_REFUSED", "EOS_KAFKA_UNREACHABLE.brokers", "EOS_GROUP_ACTIVE", "EOS_MIRROR_GROUP_REFUSED.moves"],
)
def test_what_fails_after_the_group_was_moved(refused, monkeypatch):
    """No right to delete, no answer, a consumer that has come back, or has come, read and left: the error says what is
    done and what is not."""
    clusters = Clusters(monkeypatch, *((3, 3, 4) if refused.endswith("moves") else (3,)))
    clusters.log.write(entry_of(0, 9))
    fields = dict.fromkeys(("servers", "what", "answer", "about", "bootstrap_servers", "reason"), "x")

    def fail(*_: Any) -> None:
        raise stop(refused, **fields, waited_s=1.0)

    if "ACTIVE" in refused:
        monkeypatch.setattr(ConsumerGroup, "active_members", lambda *_, **__: ["x"] if clusters.moved else [])
    elif "KAFKA" in refused:
        monkeypatch.setattr(ConsumerGroup, "delete", fail)
    with pytest.raises(EosError, match=r"was moved.*not deleted") as caught:
        clusters.move(delete=True)
    assert caught.value.entry == refused
    assert (clusters.moved, clusters.deleted) == ({"out": {0: 3}}, {})


GAP = entry_of(0, 2), entry_of(5, 9, 2)
ROWLESS = entry_of(0, 5, rows=False)


@pytest.mark.parametrize(
    ("at", "entries", "begins", "ends", "expected"),
    [
        (3, [entry_of(0, 9)], {"out": 4}, {}, "EOS_MIRROR_GROUP_REFUSED.behind"),
        (3, [entry_of(0, 9)], {"out": 3}, {}, 3),
        (1, GAP, {}, {}, "Offsets 2 to 5"),
        (2, GAP, {}, {}, "Offsets 2 to 5"),
        (1, GAP, {"in": 5}, {}, 1),
        (2, GAP, {"in": 5}, {}, 2),
        (6, GAP, {}, {}, 3),
        (2, [entry_of(3, 5, rows=False)], {}, {}, "EOS_MIRROR_GROUP_REFUSED"),
        (5, [], {"in": 3}, {"in": 5, "out": 7}, "EOS_MIRROR_GROUP_REFUSED"),
        (5, [], {"in": 5}, {"in": 5, "out": 7}, 7),
        (5, [ROWLESS], {}, {"out": 7}, 7),
    ],
    ids=[
        "the target's retention is shorter, and readers would jump",
        "all that it has not read is there",
        "before a gap in the mirror",
        "at its begin",
        "before a gap that the source has, too",
        "at its begin, and nobody misses it",
        "behind it",
        "before ranges without rows, and before the map",
        "its partition is not mirrored yet",
        "and nothing of it ever will be",
        "only transactions that were aborted: behind what the target has",
    ],
)
def test_where_a_group_goes_on(at, entries, begins, ends, expected, monkeypatch):
    """At the first row that it has not read, or it is refused; ``begins``, ``ends``: of topics' logs."""
    clusters = Clusters(monkeypatch, at)
    clusters.log.write(*entries)
    clusters.begins |= begins
    clusters.ends |= ends
    if isinstance(expected, int):
        clusters.move()
        assert clusters.moved == {"out": {0: expected}}
    else:
        error = clusters.refusal()
        assert expected in f"{error.entry}: {error.message}"


def test_partitions_that_went_to_different_topics(monkeypatch):
    """By two mirrors with two prefixes: a reader of either would lack the other's."""
    clusters = Clusters(monkeypatch)
    clusters.at[SOURCE] = [{"in": {0: 1, 1: 1}}]
    clusters.origins = ORIGINS
    clusters.log.write(entry_of(0, 9), entry_of(0, 9, partition=1, into="new"))
    assert "different topics" in clusters.refusal().message


@pytest.mark.parametrize("apply", [False, True])
def test_topics_that_went_to_one_topic(apply, monkeypatch):
    """By two mirrors whose prefixes make one name: one of two offsets skips rows, or has them read again."""
    clusters = Clusters(monkeypatch, 5)
    clusters.topics["also"] = SimpleNamespace(id="also-id", partitions=4)
    clusters.origins = [*ORIGINS[:1], Origin("out", "out-id", "also", "also-id", (CLUSTER,))]
    also = MapEntry(SourcePartition(CLUSTER, "also-id", 0), "also", 0, 9, "out", "out-id", (OffsetRun(0, 40, 9),))
    clusters.log.write(entry_of(0, 9), also)
    clusters.at[SOURCE] = [{"in": {0: 5}, "also": {0: 5}}]
    error = clusters.refusal(apply=apply)
    assert error.entry == "EOS_MIRROR_GROUP_REFUSED.joined_topics" and "out-0" in error.message
    assert "45 by also, 5 by in" in error.message
    clusters.at[SOURCE] = [{"in": {0: 9}, "also": {0: 0}}]
    clusters.log.write(entry_of(0, 9, target=31))
    clusters.move()
    assert clusters.moved == {"out": {0: 40}}


def test_a_row_that_is_mirrored_while_the_map_has_none(monkeypatch):
    """The group goes on at it."""
    clusters = Clusters(monkeypatch, 5)
    clusters.log.write(ROWLESS)
    clusters.ends["out"] = 7
    ends = offsets.end_offsets
    number = partition_of(SourcePartition(CLUSTER, "id", 0), 9)

    def late(client: Any, places: Any, *more: Any) -> Any:
        found = ends(client, places, *more)
        if "out" in places and len(clusters.log.rows[number]) == 1:
            clusters.log.write(entry_of(5, 6, 7))
            found["out"][0] = 8
        return found

    monkeypatch.setattr(offsets, "end_offsets", late)
    clusters.move()
    assert clusters.moved == {"out": {0: 7}}


def test_a_transaction_of_the_mirror_that_is_open_while_the_map_has_no_row(monkeypatch):
    """It may have rows of before the group's offset, behind what the target has that is stable: only its entries
    tell."""
    clusters = Clusters(monkeypatch, 5)
    clusters.log.write(entry_of(0, 3, rows=False))
    clusters.begins["in"] = clusters.ends["in"] = clusters.ends["out"] = 5
    number, ends = partition_of(SourcePartition(CLUSTER, "id", 0), 9), offsets.end_offsets
    open_ones = [entry_of(3, 5, 5)]

    def unstable(client: Any, places: Any, *more: Any) -> Any:
        found = ends(client, places, *more)
        if MAP in places:
            found[MAP][number] += len(open_ones)
        return found

    monkeypatch.setattr(offsets, "end_offsets", unstable)
    assert clusters.refusal().condition == "EOS_MIRROR_GROUP_REFUSED"
    clusters.log.write(open_ones.pop())
    clusters.move()
    assert clusters.moved == {"out": {0: 7}}


def test_a_group_that_is_ahead_of_the_mirror_is_waited_for(monkeypatch):
    """Until the map has its offset."""
    clusters = Clusters(monkeypatch, 5)
    clusters.log.write(entry_of(0, 3))

    def mirrored(seconds: float) -> Iterator[None]:
        yield
        clusters.log.write(entry_of(3, 6, 4))
        yield

    monkeypatch.setattr(offsets, "retrying", mirrored)
    clusters.move()
    assert clusters.moved == {"out": {0: 6}}


def test_a_transaction_that_may_commit_offsets_is_waited_for_as_long_as_the_mirror(monkeypatch):
    """That of a program which was killed ends by its timeout: mostly after a minute, as --wait."""
    clusters = Clusters(monkeypatch)
    clusters.log.write(entry_of(0, 9))

    asked: list[tuple[BrokerClient, float]] = []

    def committed(group: ConsumerGroup, _: object, timeout_s: float = 12.0) -> Mapping[str, Mapping[int, int]]:
        asked.append((group.client, timeout_s))
        return {} if group.client is TARGET else {"in": {0: 3}}

    monkeypatch.setattr(ConsumerGroup, "committed", committed)
    clusters.move(wait_s=60.0)
    assert asked[0] == (SOURCE, 60.0)
    assert clusters.moved == {"out": {0: 3}}
