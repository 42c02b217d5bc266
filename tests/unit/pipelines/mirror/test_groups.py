"""Groups that must not be moved, on clusters in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from spark_eos.errors import EosError, stop
from spark_eos.pipelines.mirror.entries import MapEntry, OffsetRun, SourcePartition, partition_of
from spark_eos.pipelines.mirror.offset_map import Origin
from spark_eos.pipelines.mirror.offsets import GroupMove, GroupMover
from tests.support.models.map_logs import CLUSTER, MAP, ORIGIN, MapLog
from tests.support.models.memory_clusters import MemoryClusters, id_of

#: Of the entries of partition 0.
NUMBER = partition_of(SourcePartition(CLUSTER, ORIGIN.source_id, 0), 9)


def entry_of(
    first: int, end: int, target: int = 0, partition: int = 0, into: str = "out", rows: bool = True, of: str = "in"
) -> MapEntry:
    runs = (OffsetRun(first, target, end - first),) if rows else ()
    return MapEntry(SourcePartition(CLUSTER, id_of(of), partition), of, first, end, into, id_of(into), runs)


ALL = entry_of(0, 9)


class Scene:
    """A source with a topic, in, that was mirrored to out: ``log`` is that of the map."""

    def __init__(self, clusters: MemoryClusters) -> None:
        self.clusters, self.log = clusters, MapLog()
        self.source, self.target = clusters[CLUSTER], clusters["target"]
        self.source.make("in", 4).ends = [99] * 4
        for name in ("out", "new"):
            self.target.make(name, 4).ends = [99] * 4
        self.target.topics[MAP] = self.log
        self.log.write(ORIGIN)

    def reads(self, *committed: int) -> None:
        """The group has this offset in the source, each time that somebody asks, and the last for good."""
        self.source.committed = [{"in": {0: offset}} for offset in committed]

    def move(self, *, apply: bool = True, **options: Any) -> GroupMove:
        return GroupMover("g", self.source, self.target, MAP).move(apply=apply, **options)

    def moved(self, **options: Any) -> dict[str, dict[int, int]]:
        """The offsets at the target."""
        self.move(**options)
        return self.target.moved

    def refusal(self, **options: bool) -> EosError:
        with pytest.raises(EosError) as caught:
            self.move(**options)
        assert (self.target.moved, self.source.deleted) == ({}, {})
        return caught.value


@pytest.fixture
def scene(clusters) -> Scene:
    return Scene(clusters)


@pytest.mark.parametrize(
    ("source", "target", "busy", "overwrite", "entry"),
    [
        ([3], [7], "nobody", False, "EOS_MIRROR_GROUP_REFUSED.has_offsets"),
        ([3], [{}, 7], "nobody", False, "EOS_MIRROR_GROUP_REFUSED.has_offsets"),
        ([3], [5, 7], "nobody", True, "EOS_MIRROR_GROUP_REFUSED.moves"),
        ([3, 4], [{}], "nobody", False, "EOS_MIRROR_GROUP_REFUSED.moves"),
        ([3], [{}], CLUSTER, False, "EOS_GROUP_ACTIVE"),
        ([3], [{}], "target", False, "EOS_GROUP_ACTIVE"),
        ([{"other": {0: 3}}], [{}], "nobody", False, "EOS_GROUP_UNSUITABLE.mirror"),
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
def test_a_group_that_is_not_moved(source, target, busy, overwrite, entry, scene):
    """It would read again what it has read on either side, or lose what it commits later."""
    scene.log.write(ALL)
    scene.source.committed = [{"in": {0: at}} if isinstance(at, int) else at for at in source]
    scene.target.committed = [{"out": {0: at}} if isinstance(at, int) else at for at in target]
    scene.clusters[busy].busy = True
    assert scene.refusal(overwrite=overwrite).entry == entry


def test_a_group_that_is_moved_and_deleted(scene):
    """Its position at the target is overwritten, as somebody asks for that; at the source, its offsets in topics that
    are not mirrored stay."""
    scene.log.write(ALL)
    scene.source.committed = [{"in": {0: 3}, "other": {0: 4}}]
    scene.target.committed = [{"out": {0: 7}}]
    assert scene.move(overwrite=True, delete=True).not_mirrored == ("other",)
    assert (scene.target.moved, scene.source.deleted) == ({"out": {0: 3}}, {"in": [0]})


@pytest.mark.parametrize(
    "refused",
    ["EOS_KAFKA_REFUSED", "EOS_KAFKA_UNREACHABLE.brokers", "EOS_GROUP_ACTIVE", "EOS_MIRROR_GROUP_REFUSED.moves"],
)
def test_what_fails_after_the_group_was_moved(refused, scene):
    """No right to delete, no answer, a consumer that has come back, or has come, read and left: the error says what is
    done and what is not."""
    scene.reads(*((3, 3, 4) if refused.endswith("moves") else (3,)))
    scene.log.write(ALL)
    fields = dict.fromkeys(("servers", "what", "answer", "about", "bootstrap_servers", "reason"), "x")

    def before(request: str, _: object) -> None:
        if request == "OffsetDelete" and "KAFKA" in refused:
            raise stop(refused, **fields, waited_s=1.0)
        scene.source.busy = bool(scene.target.moved) and "ACTIVE" in refused

    scene.source.before = before
    with pytest.raises(EosError, match=r"was moved.*not deleted") as caught:
        scene.move(delete=True)
    assert caught.value.entry == refused
    assert (scene.target.moved, scene.source.deleted) == ({"out": {0: 3}}, {})


GAP = entry_of(0, 2), entry_of(5, 9, 2)
ROWLESS = entry_of(0, 5, rows=False)


@pytest.mark.parametrize(
    ("at", "entries", "begins", "ends", "expected"),
    [
        (3, [ALL], {"out": 4}, {}, "EOS_MIRROR_GROUP_REFUSED.behind"),
        (3, [ALL], {"out": 3}, {}, 3),
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
def test_where_a_group_goes_on(at, entries, begins, ends, expected, scene):
    """At the first row that it has not read, or it is refused; ``begins``, ``ends``: of topics' logs."""
    scene.reads(at)
    scene.log.write(*entries)
    topics = scene.source.topics | scene.target.topics
    for name, offset in begins.items():
        topics[name].begins = [offset] * 4
    for name, offset in ends.items():
        topics[name].ends = [offset] * 4
    if isinstance(expected, int):
        assert scene.moved() == {"out": {0: expected}}
    else:
        error = scene.refusal()
        assert expected in f"{error.entry}: {error.message}"


def test_partitions_that_went_to_different_topics(scene):
    """By two mirrors with two prefixes: a reader of either would lack the other's."""
    scene.source.committed = [{"in": {0: 1, 1: 1}}]
    scene.log.write(Origin("new", id_of("new"), "in", id_of("in"), (CLUSTER,)))
    scene.log.write(ALL, entry_of(0, 9, partition=1, into="new"))
    assert "different topics" in scene.refusal().message


@pytest.mark.parametrize("apply", [False, True])
def test_topics_that_went_to_one_topic(apply, scene):
    """By two mirrors whose prefixes make one name: one of two offsets skips rows, or has them read again."""
    scene.source.make("also", 4)
    scene.log.write(Origin("out", id_of("out"), "also", id_of("also"), (CLUSTER,)))
    scene.log.write(ALL, entry_of(0, 9, 40, of="also"))
    scene.source.committed = [{"in": {0: 5}, "also": {0: 5}}]
    error = scene.refusal(apply=apply)
    assert error.entry == "EOS_MIRROR_GROUP_REFUSED.joined_topics" and "out-0" in error.message
    assert "45 by also, 5 by in" in error.message
    scene.source.committed = [{"in": {0: 9}, "also": {0: 0}}]
    scene.log.write(entry_of(0, 9, 31))
    assert scene.moved() == {"out": {0: 40}}


def test_a_row_that_is_mirrored_while_the_map_has_none(scene):
    """The group goes on at it."""
    scene.reads(5)
    scene.log.write(ROWLESS)
    out = scene.target.topics["out"]
    out.ends[0] = 7

    def late(request: str, values: Mapping[str, Any]) -> None:
        if request == "ListOffsets" and values["topics"][0]["name"] == "out" and len(scene.log.rows[NUMBER]) == 1:
            scene.log.write(entry_of(5, 6, 7))
            out.ends[0] = 8

    scene.target.before = late
    assert scene.moved() == {"out": {0: 7}}


def test_a_transaction_of_the_mirror_that_is_open_while_the_map_has_no_row(scene):
    """It may have rows of before the group's offset, behind what the target has that is stable: only its entries
    tell."""
    scene.reads(5)
    scene.log.write(entry_of(0, 3, rows=False))
    source, target = scene.source.topics["in"], scene.target.topics["out"]
    source.begins = source.ends = target.ends = [5] * 4
    scene.log.unstable[NUMBER] = 1
    assert scene.refusal().condition == "EOS_MIRROR_GROUP_REFUSED"
    scene.log.unstable[NUMBER] = 0
    scene.log.write(entry_of(3, 5, 5))
    assert scene.moved() == {"out": {0: 7}}


def test_a_group_that_is_ahead_of_the_mirror_is_waited_for(scene):
    """Until the map has its offset."""
    scene.reads(5)
    scene.log.write(entry_of(0, 3))
    scene.clusters.at(5.0, lambda: scene.log.write(entry_of(3, 6, 4)))
    assert scene.refusal().condition == "EOS_MIRROR_GROUP_REFUSED"
    assert scene.moved(wait_s=10.0) == {"out": {0: 6}}


@pytest.mark.parametrize(("open_s", "wait_s"), [(40.0, 60.0), (5.0, 0.0)])
def test_a_transaction_that_may_commit_offsets_is_waited_for_as_long_as_the_mirror(open_s, wait_s, scene):
    """That of a program which was killed ends by its timeout: mostly after a minute, as --wait. A coordinator has some
    seconds in any case."""
    scene.reads(5)
    scene.log.write(ALL)
    scene.source.unstable_until_s = scene.clusters.now_s + open_s
    assert scene.moved(wait_s=wait_s) == {"out": {0: 5}}
