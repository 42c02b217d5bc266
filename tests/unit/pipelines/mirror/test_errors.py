"""Errors of mirrors that a healthy cluster does not provoke: by answers that are put in place of the cluster's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import KafkaError, TopicError
from spark_eos.kafka.codes import Code
from spark_eos.pipelines.mirror.entries import SourcePartition, key_of, prefix_of
from spark_eos.pipelines.mirror.offset_map import METADATA, OffsetMap, Origin, make_map, origins, write_origin
from spark_eos.pipelines.mirror.owner import read_claims
from spark_eos.pipelines.mirror.task import MirrorWriter
from spark_eos.protocol.head import Digest
from spark_eos.sink.attempt import RowWriter
from spark_eos.source.copying import Copied
from tests.support.judges.conditions import raises
from tests.support.models.map_logs import MAP, MapLog, with_map
from tests.support.models.memory_clusters import MemoryCluster, id_of

ENTRY = key_of(prefix_of(SourcePartition("c", "t", 0)), 5)


@pytest.mark.parametrize("change", [{"refuses_fetch": Code.TOPIC_AUTHORIZATION_FAILED}, {"damaged": True}])
def test_a_map_that_cannot_be_read(change):
    """A part of it would give wrong positions."""
    log = MapLog()
    log.put(METADATA, (b"k", b"v"))
    vars(log).update(change)
    with pytest.raises(KafkaError, match="EOS_MIRROR_MAP_UNREADABLE"):
        origins(with_map(log), MAP)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'{"claim": "q", "source": "s", "target": "t"}', b"{}"),
        (b'{"claim": "q", "source": "s", "target": "t"}', b"[]"),
        (b'{"claim":', b"{}"),
        (b'{"claim":' + b"[" * 200_000, b"{}"),
        (b'{"claim":\xff}', b"{}"),
        (b'{"origin": "t", "source": "s"}', b'{"target": "t"}'),
        (b'{"origin": "t"', b"{}"),
        (b'{"origin": "t", "source": "s"}', b'{"target": "t", "source": "s", "chain": 5}'),
        (ENTRY[:-1] + b"x}", b"{}"),
        (ENTRY, b"[]"),
        (ENTRY, b"\xff"),
        (ENTRY, b'{"end": 7, "runs": [], "topic": "t"}'),
        (ENTRY, b'{"end": 7, "runs": [[0, 1, 2]], "topic": "t", "id": "t"}'),
        (ENTRY, b'{"end": 7, "runs": [[1, 2]], "topic": "t", "id": "t"}'),
        (ENTRY, b'{"end": 99999999999999999999, "runs": [], "topic": "t", "id": "t"}'),
    ],
)
def test_a_record_of_others_in_a_map(key, value):
    """It begins as one of a mirror, and is none: the error says where it is."""
    log = MapLog(1)
    client = with_map(log)
    log.put(METADATA, (key, value), at=3)

    def read() -> None:
        read_claims(client, MAP)
        origins(client, MAP)
        OffsetMap.read(client, "c", {("in", 0): [5]}, MAP, ids={"in": "t"})

    with raises("EOS_MIRROR_MAP_UNREADABLE", "offset 3 of map-0 on: the record there is none"):
        read()
    log.rows[METADATA] = [(3, b"another", value)]
    read()


def test_a_map_that_cannot_be_made(clusters):
    """What the broker says is in the error."""
    clusters["there"].refuses_topics = "too many"
    with pytest.raises(TopicError, match=r"EOS_MIRROR_TOPIC_REFUSED.*too many"):
        make_map(clusters["there"], MAP, 9)


def test_a_map_that_deletes(clusters):
    """Its entries would be gone before somebody asks for them."""
    clusters["there"].make(MAP, **{"cleanup.policy": "delete"})
    with pytest.raises(TopicError, match="EOS_MIRROR_TARGET_SETTINGS"):
        make_map(clusters["there"], MAP, -1)


def test_an_origin_that_nobody_has(clusters):
    """Without it, nobody would notice a circle."""
    clusters["there"].takes_records = False
    with pytest.raises(KafkaError, match="EOS_MIRROR_MAP_NOT_WRITABLE"):
        write_origin(clusters["there"], MAP, Origin("out", "o", "in", "i", ("c",)))


def test_a_target_that_changes_while_a_task_writes():
    """Rows in the old topic are gone, and where those in the new one are, nobody knows."""
    client = MemoryCluster("there")
    client.make("out")
    producer = SimpleNamespace(flush=lambda: None)
    rows = SimpleNamespace(
        client=client, producer=producer, look_up=lambda _, **__: None, topic_ids={"out": id_of("old")}
    )
    copied = Copied(0, 0, None)
    copies = SimpleNamespace(readable=SimpleNamespace(parts=iter), writer=rows, copied=lambda _: copied)
    mirror = SimpleNamespace(targets=SimpleNamespace(map=MAP), target=lambda _: "out")
    with pytest.raises(KafkaError, match="EOS_MIRROR_TARGET_RECREATED"):
        list(MirrorWriter(mirror, copies).written([OffsetRange("in", 0, 0, 5)]))


def test_a_topic_that_is_gone_before_it_had_a_target(clusters):
    """Its range is reported as lost, and may be left out; the other topics are mirrored, and nothing waits for a target
    that nobody makes any more."""
    clusters["there"].make("out.b")
    clusters["there"].make(MAP, 9)
    written = []
    producer = SimpleNamespace(
        client=clusters["there"],
        flush=lambda: None,
        runs=lambda *_: [(40, 2)],
        write=lambda topic, *_, **__: written.append(topic),
    )
    readable = SimpleNamespace(parts=lambda every: every[1:], ids={"b": "b-source"})
    copied = Copied(2, 0, None, ((0, 2),))
    rows = RowWriter(None, producer, Digest.BATCHES)
    copies = SimpleNamespace(readable=readable, writer=rows, copied=lambda _: copied)
    mirror = SimpleNamespace(targets=SimpleNamespace(map=MAP), target="out.{}".format, cluster="here")
    ranges = [OffsetRange("a", 0, 0, 5), OffsetRange("b", 0, 0, 2)]
    assert sum(stats.rows for stats in MirrorWriter(mirror, copies).written(ranges)) == 2
    assert written == [MAP]
