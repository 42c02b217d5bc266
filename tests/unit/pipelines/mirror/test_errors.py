"""Errors of mirrors that a healthy cluster does not provoke: by answers that are put in place of the cluster's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import KafkaError, TopicError
from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.codes import OK, Code
from spark_eos.ledger import log as ledger_log
from spark_eos.ledger.reader import Fetched
from spark_eos.pipelines.mirror import offset_map, owner, task
from spark_eos.pipelines.mirror.entries import SourcePartition, key_of, prefix_of
from spark_eos.pipelines.mirror.offset_map import OffsetMap, Origin
from spark_eos.protocol.head import Digest
from spark_eos.sink import attempt
from spark_eos.sink.attempt import RowWriter
from spark_eos.source.copying import Copied
from tests.support.judges.conditions import raises
from tests.support.models.map_logs import CLIENT, MapLog, reading

ENTRY = key_of(prefix_of(SourcePartition("c", "t", 0)), 5)


@pytest.mark.parametrize(("error", "damage"), [(Code.TOPIC_AUTHORIZATION_FAILED, ""), (OK, "a checksum")])
def test_a_map_that_cannot_be_read(error, damage, monkeypatch):
    """A part of it would give wrong positions."""
    monkeypatch.setattr(ledger_log, "begin_offsets", lambda *_: {"map": {0: 0}})
    monkeypatch.setattr(ledger_log, "end_offsets", lambda *_: {"map": {0: 5}})
    monkeypatch.setattr(ledger_log.KafkaLog, "fetch", lambda *_: Fetched(error, damage=damage))
    with pytest.raises(KafkaError, match="EOS_MIRROR_MAP_UNREADABLE"):
        list(offset_map.MapPartition(CLIENT, "map", 0))


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
def test_a_record_of_others_in_a_map(key, value, monkeypatch):
    """It begins as one of a mirror, and is none: the error says where it is."""
    log = MapLog(1)
    log.rows[0] = [(3, key, value)]

    def read() -> None:
        owner.read_claims(CLIENT, "map")
        offset_map.origins(CLIENT, "map")
        OffsetMap.read(CLIENT, "c", {("in", 0): [5]}, "map", ids={"in": "t"})

    monkeypatch.setattr(owner, "end_offsets", lambda *_: {"map": {0: 4}})
    with reading(log):
        with raises("EOS_MIRROR_MAP_UNREADABLE", "offset 3 of map-0 on: the record there is none"):
            read()
        log.rows[0] = [(3, b"another", value)]
        read()


def test_a_map_that_cannot_be_made(monkeypatch):
    """What the broker says is in the error."""
    monkeypatch.setattr(offset_map, "describe_topics", lambda *_, **__: {})
    monkeypatch.setattr(offset_map, "create_topic", lambda *_: "too many")
    with pytest.raises(TopicError, match=r"EOS_MIRROR_TOPIC_REFUSED.*too many"):
        offset_map.make_map(CLIENT, "map", 9)


def test_a_map_that_deletes(monkeypatch):
    """Its entries would be gone before somebody asks for them."""
    monkeypatch.setattr(offset_map, "describe_topics", lambda *_, **__: {"map": None})
    monkeypatch.setattr(offset_map, "topic_config", lambda *_: {"cleanup.policy": "delete"})
    with pytest.raises(TopicError, match="EOS_MIRROR_TARGET_SETTINGS"):
        offset_map.make_map(CLIENT, "map", -1)


def test_an_origin_that_nobody_has(monkeypatch):
    """Without it, nobody would notice a circle."""
    silent = SimpleNamespace(produce=lambda *_, **__: None, flush=lambda _: 1)
    monkeypatch.setattr(offset_map, "Producer", lambda _: silent)
    with pytest.raises(KafkaError, match="EOS_MIRROR_MAP_NOT_WRITABLE"):
        offset_map.write_origin(CLIENT, "map", Origin("out", "o", "in", "i", ("c",)))


def test_a_target_that_changes_while_a_task_writes(monkeypatch):
    """Rows in the old topic are gone, and where those in the new one are, nobody knows."""
    monkeypatch.setattr(task, "describe_topics", lambda *_: {"out": SimpleNamespace(id="other")})
    producer = SimpleNamespace(flush=lambda: None)
    rows = SimpleNamespace(client=None, producer=producer, look_up=lambda _, **__: None, topic_ids={"out": "one"})
    copied = Copied(0, 0, None)
    copies = SimpleNamespace(readable=SimpleNamespace(parts=iter), writer=rows, copied=lambda _: copied)
    mirror = SimpleNamespace(targets=SimpleNamespace(map="map"), target=lambda _: "out")
    with pytest.raises(KafkaError, match="EOS_MIRROR_TARGET_RECREATED"):
        list(task.MirrorWriter(mirror, copies).written([OffsetRange("in", 0, 0, 5)]))


def test_a_topic_that_is_gone_before_it_had_a_target(monkeypatch):
    """Its range is reported as lost, and may be left out; the other topics are mirrored, and nothing waits for a target
    that nobody makes any more."""
    there = {"out.b": Topic("b-id", 1, internal=False), "map": Topic("map-id", 9, internal=False)}

    def describe(_, names, *, missing_ok=False, **__):
        if not missing_ok:
            assert there.keys() >= set(names)
        return {name: there[name] for name in names if name in there}

    for module in (attempt, task):
        monkeypatch.setattr(module, "describe_topics", describe)
    written = []
    producer = SimpleNamespace(
        client=None, flush=lambda: None, runs=lambda *_: [(40, 2)], write=lambda topic, *_, **__: written.append(topic)
    )
    readable = SimpleNamespace(parts=lambda every: every[1:], ids={"b": "b-source"})
    copied = Copied(2, 0, None, ((0, 2),))
    copies = SimpleNamespace(
        readable=readable, writer=RowWriter(None, producer, Digest.BATCHES), copied=lambda _: copied
    )
    mirror = SimpleNamespace(targets=SimpleNamespace(map="map"), target="out.{}".format, cluster="here")
    ranges = [OffsetRange("a", 0, 0, 5), OffsetRange("b", 0, 0, 2)]
    assert sum(stats.rows for stats in task.MirrorWriter(mirror, copies).written(ranges)) == 2
    assert written == ["map"]
