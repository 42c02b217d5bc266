"""Where a mirror is in its source, by what both clusters and the ledger say: what is found and what is not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import EosError, KafkaError
from spark_eos.kafka.admin.topics import Topic
from spark_eos.ledger import operator
from spark_eos.ledger.operator import QueryOperator
from spark_eos.pipelines.copy.ranges import RANGES, CopiedFrom, read_from, to_bytes
from spark_eos.pipelines.mirror.entries import MapEntry, OffsetRun, SourcePartition
from spark_eos.pipelines.mirror.offset_map import METADATA, OffsetMap, Origin
from spark_eos.pipelines.mirror.offsets import MirrorPosition, MirrorQuery, MirrorState
from spark_eos.pipelines.mirror.owner import Claim, to_record
from spark_eos.protocol.commands import Ended
from spark_eos.protocol.head import NOBODY, Decision, Head, Pair, Probe, Verdict, Written
from tests.support.models.map_logs import MAP, MapLog, with_map
from tests.support.models.memory_clusters import MemoryClusters, id_of

IN, OUT, NEW, GONE = (id_of(name) for name in ("in", "out", "new", "gone"))
TOPICS, TARGETS = {"in": Topic(IN, 2, internal=False)}, {"out": Topic(OUT, 2, internal=False)}
ORIGIN = Origin("out", OUT, "in", IN, ("here",))


def entry(first: int, end: int, partition: int = 0, target_id: str = OUT) -> MapEntry:
    source = SourcePartition("here", IN, partition)
    return MapEntry(source, "in", first, end, "out", target_id, (OffsetRun(first, first, end - first),))


def written(partition: int, start: int, end: int, verdict: Verdict | None = Verdict.COMMITTED) -> Written:
    own = Written(partition, Pair(f"i{partition}", 1, 1), 1, 1, Probe("out", partition, 0), verdict)
    return replace(own, extra=read_from([OffsetRange("in", partition, start, end)], {}))


def state(*entries: MapEntry, decided: tuple[Written, ...] = (), **changed: object) -> MirrorState:
    copied_from = CopiedFrom("here", (("in", IN),), None)
    decision = Decision(7, 0, 1, 1, 1, None, decided, extra=RANGES.extra(to_bytes(copied_from)))
    log = MapLog()
    log.write(*entries)
    map_ = OffsetMap.read(with_map(log), "here", {("in", p): () for p in range(2)}, MAP, ids={"in": IN})
    return replace(MirrorState(map_, decision, TOPICS, [ORIGIN], TARGETS), **changed)


#: Where a topic goes that was mirrored once more, with another prefix.
AGAIN = [ORIGIN, Origin("old.out", GONE, "in", IN, ("here",))]
BOTH = TARGETS | {"old.out": Topic(GONE, 2, internal=False)}


def end(of: MirrorState) -> MirrorPosition:
    of.check_decided()
    return of.position("q", of.unread())


def test_where_it_ends():
    """Each partition where its entries end; those of which nothing was mirrored at their beginning."""
    found = end(state(entry(3, 5), entry(5, 9), entry(0, 4, 1), decided=(written(0, 5, 9),)))
    assert (found.batch, found.offsets, found.unread) == (7, {"in": {0: 9, 1: 4}}, ())
    found = end(state(entry(3, 5)))
    assert (found.offsets, found.unread) == ({"in": {0: 5, 1: -2}}, (("in", 1),))


def test_what_was_lost_is_mirrored_again():
    """From where its range begins, with an entry before it or without any."""
    lost = (written(0, 5, 9, Verdict.LOST), written(1, 2, 4, Verdict.LOST))
    found = end(state(entry(3, 5), decided=lost))
    assert (found.offsets, found.unread, found.lost) == ({"in": {0: 5, 1: 2}}, (), (("in", 0), ("in", 1)))


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (state(entry(0, 5), entry(4, 9)), "more than once"),
        (state(entry(0, 5), entry(6, 9)), "nothing of the offsets 5 to 6"),
        (state(entry(0, 5, target_id=NEW), entry(5, 9)), "to several topics"),
        (state(entry(0, 5), decided=(written(0, 5, 9),)), "ends at offset 5, but micro-batch 7 has 5 to 9"),
        (state(decided=(written(0, 5, 9),)), "ends at offset 5, but micro-batch 7 has 5 to 9"),
        (state(entry(0, 9), decided=(written(0, 5, 9, Verdict.LOST),)), "ends at offset 9"),
        (state(entry(0, 9), decided=(written(0, 5, 9, None),)), "ends at offset 9"),
        (state(entry(0, 5), origins=AGAIN, targets=BOTH), "to several topics"),
        (state(entry(0, 5, target_id=GONE), origins=AGAIN), "to several topics"),
        (state(entry(0, 5), origins=[]), "never mirrored"),
        (state(entry(0, 5), origins=AGAIN, targets={}), "EOS_MIRROR_TARGET_RECREATED"),
        (state(entry(0, 5), sources={"in": Topic(NEW, 1, internal=False)}), "recreated since"),
        (state(entry(0, 5), targets={"out": Topic(NEW, 2, internal=False)}), "EOS_MIRROR_TARGET_RECREATED"),
        (state(entry(0, 5), targets={}), "EOS_MIRROR_TARGET_RECREATED"),
    ],
)
def test_what_the_map_does_not_tell(of, why):
    """A guess would lose rows, or double them."""
    with pytest.raises(KafkaError, match=why) as caught:
        end(of)
    assert caught.value.condition in ("EOS_MIRROR_POSITION_UNKNOWN", "EOS_MIRROR_TARGET_RECREATED")


def test_a_target_that_is_gone_and_was_replaced():
    """The topic was mirrored again, with another prefix: its origin is noted beside the old one."""
    for targets in ({}, {"old.out": Topic(NEW, 1, internal=False)}):
        found = end(state(entry(0, 5), origins=AGAIN, targets=TARGETS | targets))
        assert found.offsets == {"in": {0: 5, 1: -2}}


class Scene:
    """A mirror that is closed, and has decided nothing that is not committed: its source, here, and its target, there,
    with the ``log`` of the map. ``head``: of its ledger; ``ended``: what its recovery finds; ``done``: commands that
    were given to the query."""

    def __init__(self, clusters: MemoryClusters, patch: pytest.MonkeyPatch) -> None:
        here, there = clusters["here"], clusters["there"]
        here.make("in", 2)
        here.make("other")
        self.target = there.make("out", 2)
        there.make("map of others")
        there.topics[MAP] = self.log = MapLog(1)
        self.log.write(ORIGIN, entry(0, 5))
        self.head = Head(NOBODY, 3, (), 5, state().decision, prefix="p")
        self.ended: Ended | None = None
        self.done: list[str] = []
        ledger = SimpleNamespace(
            client=there, ledger="ledger", prefix="p", prefix_of=lambda _: "p", ports=lambda *_, **__: None
        )
        self.query = MirrorQuery(QueryOperator(ledger, "q"), here, MAP)
        patch.setattr(operator, "undecided", lambda *_: ())
        patch.setattr(operator, "newest_head", lambda _: self.head)
        patch.setattr(operator, "recover", lambda *_: self.done.append("closed") or self.ended)
        patch.setattr(operator, "hand_over", lambda *_: self.done.append("retired") or True)

    def position(self, settle: bool = False, **changed: object) -> MirrorPosition:
        return replace(self.query, **changed).position(settle=settle, wait_s=0)


@pytest.fixture
def scene(clusters, monkeypatch) -> Scene:
    return Scene(clusters, monkeypatch)


def test_a_query_that_is_closed_and_settled(scene):
    """Nothing is done to it."""
    assert scene.position().offsets == {"in": {0: 5, 1: -2}}
    assert not scene.done


def test_rows_in_a_partition_of_which_the_map_has_nothing(scene):
    """As of a map that was lost once, and begun anew."""
    scene.target.ends = [8, 8]
    with pytest.raises(EosError, match=r"in-1 in the target: the map has nothing of it, but out-1 has had records"):
        scene.position()


def test_a_map_that_is_held_by_another_mirror(scene):
    """What is behind its open transaction cannot be read."""
    scene.log.unstable[METADATA] = 1
    with pytest.raises(EosError, match=r"EOS_MIRROR_NOT_SETTLED.*another mirror"):
        scene.position(settle=True)


#: Heads of queries that a wrong --query or --source names: of another source, of rows that came through Spark, and of a
#: query that has decided nothing.
MISTAKEN = [
    (
        replace(state().decision, extra=RANGES.extra(to_bytes(CopiedFrom("elsewhere", (), None)))),
        "from cluster elsewhere, but --source",
    ),
    (replace(state().decision, extra=None), "no copied rows"),
    (None, "no copied rows"),
]


@pytest.mark.parametrize("run", [NOBODY, "alive"])
@pytest.mark.parametrize("settle", [True, False])
@pytest.mark.parametrize(("decision", "why"), MISTAKEN)
def test_a_query_that_is_no_mirror_of_this_source(scene, decision, why, settle, run):
    """Its id was mistaken for another, or the clusters were: nothing is done to it."""
    scene.head = replace(scene.head, run=run, decision=decision)
    with pytest.raises(EosError, match=rf"EOS_MIRROR_POSITION_UNKNOWN.*{why}"):
        scene.position(settle)
    assert not scene.done


@pytest.mark.parametrize(
    ("changed", "condition"),
    [
        ({"topics": ("nobody",)}, "EOS_TOPIC_MISSING"),
        ({"topics": ("other",)}, "EOS_MIRROR_POSITION_UNKNOWN"),
        ({"map": "nobody"}, "EOS_TOPIC_MISSING"),
        ({"map": "map of others"}, "EOS_MIRROR_POSITION_UNKNOWN"),
    ],
)
def test_a_topic_or_a_map_that_is_not_its_own(scene, changed, condition):
    """Its run goes on, as after any wrong argument."""
    decision = replace(scene.head.decision, written=(written(0, 0, 5),))
    scene.head = replace(scene.head, run="alive", decision=decision)
    with pytest.raises(EosError, match=condition):
        scene.position(settle=True, **changed)
    assert not scene.done


@pytest.mark.parametrize(("source_id", "done"), [(IN, ["retired"]), (id_of("of another cluster"), [])])
def test_a_mirror_that_has_decided_nothing(scene, source_id, done):
    """What it has claimed in this source shows that it is a mirror of it: it is retired, and its position is the one
    at which it began."""
    scene.head = replace(scene.head, decision=None)
    scene.log.put(METADATA, to_record(Claim("q", source_id, "out", "in", "ledger", "p", "at", "host", 0)))
    with pytest.raises(EosError, match="EOS_MIRROR_POSITION_UNKNOWN"):
        scene.position(settle=True)
    assert scene.done == done


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("settle", [True, False])
def test_a_query_that_does_not_come_to_rest(scene, left, settle):
    """A run that has begun meanwhile, or a transaction that stays open."""
    scene.head = replace(scene.head, run="r")
    pair = Pair("one", 1, 1)
    scene.ended = Ended(replace(scene.head, run=NOBODY), frozenset({pair})) if left else Ended(scene.head)
    with pytest.raises(EosError, match="EOS_MIRROR_NOT_SETTLED"):
        scene.position(settle)
