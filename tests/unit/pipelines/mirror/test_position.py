"""Where a mirror is in its source, by what both clusters and the ledger say: what is found and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import EosError, KafkaError
from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.errors import missing
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger import operator
from spark_eos.ledger.operator import QueryOperator
from spark_eos.ledger.owners import Cluster
from spark_eos.pipelines.copy.ranges import RANGES, CopiedFrom, read_from, to_bytes
from spark_eos.pipelines.mirror import offsets
from spark_eos.pipelines.mirror.entries import MapEntry, OffsetRun, SourcePartition
from spark_eos.pipelines.mirror.offset_map import OffsetMap, Origin
from spark_eos.pipelines.mirror.offsets import MirrorPosition, MirrorQuery, MirrorState
from spark_eos.pipelines.mirror.owner import Claim
from spark_eos.protocol.commands import Ended
from spark_eos.protocol.head import NOBODY, Decision, Head, Pair, Probe, Verdict, Written
from tests.support.models.map_logs import CLIENT, MapLog, reading

#: Some tests put another answer in its place.
READ = OffsetMap.read
OTHER = broker_client(KafkaProperties({"bootstrap.servers": "127.0.0.1:2"}))


def entry(first: int, end: int, partition: int = 0, target_id: str = "out-id") -> MapEntry:
    source = SourcePartition("here", "in-id", partition)
    return MapEntry(source, "in", first, end, "out", target_id, (OffsetRun(first, first, end - first),))


def written(partition: int, start: int, end: int, verdict: Verdict | None = Verdict.COMMITTED) -> Written:
    own = Written(partition, Pair(f"i{partition}", 1, 1), 1, 1, Probe("out", partition, 0), verdict)
    return replace(own, extra=read_from([OffsetRange("in", partition, start, end)], {}))


def map_of(*entries: MapEntry) -> OffsetMap:
    log = MapLog()
    log.write(*entries)
    with reading(log):
        return READ(CLIENT, "here", {("in", p): () for p in range(2)}, "map", ids={"in": "in-id"})


def state(*entries: MapEntry, decided: tuple[Written, ...] = (), **changed: object) -> MirrorState:
    copied_from = CopiedFrom("here", (("in", "in-id"),), None)
    decision = Decision(7, 0, 1, 1, 1, None, decided, extra=RANGES.extra(to_bytes(copied_from)))
    topics = {"in": Topic("in-id", 2, internal=False)}
    known = [Origin("out", "out-id", "in", "in-id", ("here",))]
    made = MirrorState(map_of(*entries), decision, topics, known, {"out": Topic("out-id", 2, internal=False)})
    return replace(made, **changed)


#: Where a topic goes that was mirrored once more, with another prefix.
AGAIN = [Origin(f"{name}out", id_, "in", "in-id", ("here",)) for name, id_ in (("", "out-id"), ("old.", "gone"))]
BOTH = {"out": Topic("out-id", 2, internal=False), "old.out": Topic("gone", 2, internal=False)}


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
        (state(entry(0, 5, target_id="old"), entry(5, 9)), "to several topics"),
        (state(entry(0, 5), decided=(written(0, 5, 9),)), "ends at offset 5, but micro-batch 7 has 5 to 9"),
        (state(decided=(written(0, 5, 9),)), "ends at offset 5, but micro-batch 7 has 5 to 9"),
        (state(entry(0, 9), decided=(written(0, 5, 9, Verdict.LOST),)), "ends at offset 9"),
        (state(entry(0, 9), decided=(written(0, 5, 9, None),)), "ends at offset 9"),
        (state(entry(0, 5), origins=AGAIN, targets=BOTH), "to several topics"),
        (state(entry(0, 5, target_id="gone"), origins=AGAIN), "to several topics"),
        (state(entry(0, 5), origins=[]), "never mirrored"),
        (state(entry(0, 5), origins=AGAIN, targets={}), "EOS_MIRROR_TARGET_RECREATED"),
        (state(entry(0, 5), sources={"in": Topic("new-id", 1, internal=False)}), "recreated since"),
        (state(entry(0, 5), targets={"out": Topic("new-id", 2, internal=False)}), "EOS_MIRROR_TARGET_RECREATED"),
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
    for targets in ({}, {"old.out": Topic("new-id", 1, internal=False)}):
        found = end(state(entry(0, 5), origins=AGAIN, targets={"out": BOTH["out"]} | targets))
        assert found.offsets == {"in": {0: 5, 1: -2}}


@pytest.fixture
def query(monkeypatch) -> MirrorQuery:
    """With a closed query, whose ledger and clusters say what `state` has; the target's partitions are empty."""
    monkeypatch.setattr(offsets, "cluster_id", lambda *_: "here")
    monkeypatch.setattr(operator, "undecided", lambda *_: ())
    monkeypatch.setattr(
        offsets, "end_offsets", lambda kafka, asked, *_: {t: dict.fromkeys(p, 0) for t, p in asked.items()}
    )
    topics = {"in": Topic("in-id", 2, internal=False), "out": Topic("out-id", 2, internal=False)}
    topics["map"] = Topic("map-id", 1, internal=False)
    topics["of-others"] = topics["other"] = Topic("other-id", 1, internal=False)
    known = [Origin("out", "out-id", "in", "in-id", ("here",))]

    def described(kafka, names, **_):
        for name in set(names) - topics.keys():
            raise missing("s", name)
        return {name: topics[name] for name in names}

    def origins_of(kafka, map_, cluster):
        described(kafka, [map_])
        return known if map_ == "map" else []

    monkeypatch.setattr(offsets, "describe_topics", described)
    monkeypatch.setattr(offsets, "held_partition", lambda *_: None)
    monkeypatch.setattr(offsets, "origins_from", origins_of)
    map_ = map_of(entry(0, 5))
    monkeypatch.setattr(offsets.OffsetMap, "read", lambda *_: map_)
    head = Head(NOBODY, 3, (), 5, state().decision, prefix="p")
    monkeypatch.setattr(Cluster, "prefix_of", lambda *_: "p")
    monkeypatch.setattr(Cluster, "ports", lambda *_, **__: None)
    monkeypatch.setattr(operator, "newest_head", lambda ports: head)
    return MirrorQuery(QueryOperator(Cluster(OTHER, "ledger", "p"), "q"), CLIENT, "map")


def test_a_query_that_is_closed_and_settled(query):
    """Nothing is done to it."""
    assert query.position(settle=False, wait_s=0).offsets == {"in": {0: 5, 1: -2}}


def test_rows_in_a_partition_of_which_the_map_has_nothing(query, monkeypatch):
    """As of a map that was lost once, and begun anew."""
    monkeypatch.setattr(
        offsets, "end_offsets", lambda kafka, asked, *_: {t: dict.fromkeys(p, 8) for t, p in asked.items()}
    )
    with pytest.raises(EosError, match=r"in-1 in the target: the map has nothing of it, but out-1 has had records"):
        query.position(settle=False, wait_s=0)


def test_a_map_that_is_held_by_another_mirror(query, monkeypatch):
    """What is behind its open transaction cannot be read."""

    monkeypatch.setattr(offsets, "held_partition", lambda *_: 3)
    with pytest.raises(EosError, match=r"EOS_MIRROR_NOT_SETTLED.*another mirror"):
        query.position(settle=True, wait_s=0)


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
def test_a_query_that_is_no_mirror_of_this_source(query, monkeypatch, decision, why, settle, run):
    """Its id was mistaken for another, or the clusters were: nothing is done to it."""
    done = []
    monkeypatch.setattr(operator, "newest_head", lambda ports: Head(run, 3, (), 5, decision, prefix="p"))
    monkeypatch.setattr(offsets, "read_claims", lambda *_: [])
    monkeypatch.setattr(operator, "recover", lambda *_: done.append("closed"))
    monkeypatch.setattr(operator, "hand_over", lambda *_: done.append("retired"))
    with pytest.raises(EosError, match=rf"EOS_MIRROR_POSITION_UNKNOWN.*{why}"):
        query.position(settle=settle, wait_s=0)
    assert not done


@pytest.mark.parametrize(
    ("changed", "condition"),
    [
        ({"topics": ("nobody",)}, "EOS_TOPIC_MISSING"),
        ({"topics": ("other",)}, "EOS_MIRROR_POSITION_UNKNOWN"),
        ({"map": "nobody"}, "EOS_TOPIC_MISSING"),
        ({"map": "of-others"}, "EOS_MIRROR_POSITION_UNKNOWN"),
    ],
)
def test_a_topic_or_a_map_that_is_not_its_own(query, monkeypatch, changed, condition):
    """Its run goes on, as after any wrong argument."""
    done = []
    head = Head("alive", 3, (), 5, replace(state().decision, written=(written(0, 0, 5),)), prefix="p")
    monkeypatch.setattr(operator, "newest_head", lambda ports: head)
    monkeypatch.setattr(operator, "recover", lambda *_: done.append("closed"))
    with pytest.raises(EosError, match=condition):
        replace(query, **changed).position(settle=True, wait_s=0)
    assert not done


@pytest.mark.parametrize(("source_id", "retired"), [("in-id", 1), ("of-another-cluster", 0)])
def test_a_mirror_that_has_decided_nothing(query, monkeypatch, source_id, retired):
    """What it has claimed in this source shows that it is a mirror of it: it is retired, and its position is the one
    at which it began."""
    done = []
    monkeypatch.setattr(operator, "newest_head", lambda ports: Head(NOBODY, 3, (), 5, None, prefix="p"))
    claim = Claim("q", source_id, "out", "in", "ledger", "p", "at", "host", 0)
    monkeypatch.setattr(offsets, "read_claims", lambda *_: [claim])
    monkeypatch.setattr(operator, "hand_over", lambda *_: done.append("retired") or True)
    with pytest.raises(EosError, match="EOS_MIRROR_POSITION_UNKNOWN"):
        query.position(settle=True, wait_s=0)
    assert len(done) == retired


@pytest.mark.parametrize("left", [True, False])
def test_a_query_that_does_not_come_to_rest(query, monkeypatch, left):
    """A run that has begun meanwhile, or a transaction that stays open."""
    head = Head("r", 3, (), 5, state().decision, prefix="p")
    pair = Pair("one", 1, 1)
    ended = Ended(replace(head, run=NOBODY), frozenset({pair})) if left else Ended(head)
    monkeypatch.setattr(operator, "newest_head", lambda ports: head)
    monkeypatch.setattr(operator, "recover", lambda *_: ended)
    for settle in (True, False):
        with pytest.raises(EosError, match="EOS_MIRROR_NOT_SETTLED"):
            query.position(settle=settle, wait_s=0)
