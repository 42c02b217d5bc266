"""Who is in a group, of each type that brokers have: members join by requests after Kafka's own definitions (kio)."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer
from kio.schema.streams_group_heartbeat.v0.request import StreamsGroupHeartbeatRequest, Subtopology, Topology
from kio.serial import entity_writer
from kio.static.primitive import i32, i32Timedelta

from spark_eos.errors import EosError, KafkaError
from spark_eos.kafka.admin.groups import ConsumerGroup
from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.net.metadata import CoordinatorKind
from spark_eos.kafka.net.schema import INT16, INT32, FieldReader, FieldType, Int16, Int32, Record, Request
from spark_eos.pipelines.mirror.offsets import GroupMover
from spark_eos.sink.preflight import check_group
from tests.support.waiting import wait_for

JOINS, LEAVES = 0, -1


def _write(entity: Any) -> bytes:
    data = io.BytesIO()
    entity_writer(type(entity))(data, entity)
    return data.getvalue()


class Heartbeat(Record):
    """The beginning of an answer to a heartbeat, which is all that is read of it."""

    throttle_time_ms: Int32
    error_code: Int16

    @classmethod
    def read(cls, fields: FieldReader) -> Heartbeat:
        found = cls(throttle_time_ms=INT32.read(fields), error_code=INT16.read(fields))
        fields.skip(fields.left)
        return found


def _unread(fields: FieldReader) -> None:
    raise NotImplementedError


def heartbeat(client: BrokerClient, entity: Any) -> None:
    kind = type(entity)
    version = int(kind.__version__)
    request = Request(
        kind.__name__, int(kind.__api_key__), version, version, asks=FieldType(_write, _unread), answers=Heartbeat
    )
    if not client.supports(request.api, version):
        pytest.skip(f"these brokers do not know {kind.__name__}")

    def beat() -> bool:
        node, _ = client.coordinator(entity.group_id, 10.0, CoordinatorKind.GROUP)
        answer = None if node is None else client.ask(node, request, entity, 10.0)
        if answer is not None and answer.error_code == 35:  # UNSUPPORTED_VERSION: switched off
            pytest.skip(f"these brokers have {kind.__name__} switched off")
        return answer is not None and answer.error_code == OK

    wait_for(beat, "the answer to a heartbeat")


def streams(group: str, member: str, epoch: int, topic: str) -> StreamsGroupHeartbeatRequest:
    own = Subtopology(
        subtopology_id="0",
        source_topics=(topic,),
        source_topic_regex=(),
        state_changelog_topics=(),
        repartition_sink_topics=(),
        repartition_source_topics=(),
        copartition_groups=(),
    )
    joins = epoch == JOINS
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=i32(epoch),
        endpoint_information_epoch=i32(0),
        rebalance_timeout=i32Timedelta.parse(timedelta(minutes=5)),
        topology=Topology(epoch=i32(0), subtopologies=(own,)) if joins else None,
        active_tasks=() if joins else None,
        standby_tasks=() if joins else None,
        warmup_tasks=() if joins else None,
        process_id="process" if joins else None,
        user_endpoint=None,
        client_tags=() if joins else None,
        task_offsets=None,
        task_end_offsets=None,
        shutdown_application=False,
    )


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4()}"


def test_a_streams_group(kafka, client, topic, group):
    """While it runs, nobody may commit for it or move it; when it has ended, it is as one of consumers."""
    name, member = topic(1), str(uuid.uuid4())
    heartbeat(client, streams(group, member, JOINS, name))
    (found,) = ConsumerGroup(broker_client(kafka), group).active_members()
    assert "streams" in found
    with pytest.raises(KafkaError, match="EOS_GROUP_ACTIVE"):
        check_group(broker_client(kafka), group)
    with pytest.raises(EosError, match="EOS_GROUP_ACTIVE"):
        GroupMover(group, broker_client(kafka), broker_client(kafka)).move()
    heartbeat(client, streams(group, member, LEAVES, name))
    wait_for(lambda: ConsumerGroup(broker_client(kafka), group).active_members() == [], "the end of the member")
    check_group(broker_client(kafka), group)


@contextmanager
def consuming(servers: str, group: str, topic: str, protocol: str) -> Iterator[None]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": group, "client.id": "one", "group.protocol": protocol}
    )
    consumer.subscribe([topic])
    try:
        wait_for(lambda: consumer.poll(0.1) is not None or consumer.assignment(), "the assignment")
        yield
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_consumers(protocol, kafka, client, topic, group):
    """Members have names; a group that nobody knows has none."""
    if protocol == "consumer" and not client.supports(68, 1):
        pytest.skip("these brokers know no groups of this protocol")
    assert ConsumerGroup(broker_client(kafka), group).active_members() == []
    with consuming(kafka.bootstrap_servers, group, topic(1), protocol):
        (found,) = ConsumerGroup(broker_client(kafka), group).active_members()
        assert found.startswith("one at ")
    wait_for(lambda: ConsumerGroup(broker_client(kafka), group).active_members() == [], "the end of the member")
