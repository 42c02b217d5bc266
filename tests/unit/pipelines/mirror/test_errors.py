"""Errors of mirrors that a healthy cluster does not provoke: by answers that are put in place of the cluster's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_eos.errors import KafkaError, TopicError
from spark_eos.kafka.codes import OK, Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger import log as ledger_log
from spark_eos.ledger.reader import Fetched
from spark_eos.pipelines.mirror import offset_map, owner, task
from spark_eos.pipelines.mirror.entries import SourcePartition, key_of, prefix_of
from spark_eos.pipelines.mirror.offset_map import OffsetMap, Origin

ENTRY = key_of(prefix_of(SourcePartition("c", "t", 0)), 5)
CLIENT = broker_client(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))


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
    rows = [(3, key, value)]

    def read() -> None:
        owner.read_claims(CLIENT, "map")
        offset_map.origins(CLIENT, "map")
        OffsetMap.read(CLIENT, "c", {("in", 0): [5]}, "map", ids={"in": "t"})

    monkeypatch.setattr(ledger_log, "begin_offsets", lambda *_: {"map": {0: 0}})
    for module in (ledger_log, owner):
        monkeypatch.setattr(module, "end_offsets", lambda *_: {"map": {0: 5}})
    topic = SimpleNamespace(id="m", partitions=1)
    monkeypatch.setattr(offset_map, "describe_topics", lambda *_, **__: {"map": topic})
    monkeypatch.setattr(ledger_log.KafkaLog, "fetch", lambda *_: Fetched(OK, rows, 5))
    with pytest.raises(KafkaError, match=r"EOS_MIRROR_MAP_UNREADABLE.*offset 3 of map-0 on: the record there is none"):
        read()
    rows[:] = [(3, b"another", value)]
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
    rows = SimpleNamespace(client=None, producer=producer, look_up=lambda _: None, topic_ids={"out": "one"})
    copies = SimpleNamespace(readable=SimpleNamespace(parts=lambda _: iter(())), writer=rows)
    mirror = SimpleNamespace(targets=SimpleNamespace(map="map"), target=lambda _: "out")
    with pytest.raises(KafkaError, match="EOS_MIRROR_TARGET_RECREATED"):
        list(task.MirrorWriter(mirror, copies).written([SimpleNamespace(topic="in")]))
