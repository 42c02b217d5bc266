"""A checkpoint, a ledger or a group that does not fit: an error with a name and a remedy, nothing written."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import write
from tests.support.queries.sink_queries import Sink, ended_by, kafka_frame
from tests.support.queries.source_calls import anew
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for


def test_an_offset_log_that_is_damaged_while_a_batch_runs(spark, cluster, sink, topic, view, tmp_path):
    """The offsets that it should publish cannot be told: nothing is decided, and nothing stays open."""
    source, out, group = topic(), topic(), f"group-{uuid.uuid4()}"
    write(cluster.bootstrap_servers, source, [(0, "a")])
    query = sink(topic=out, offsets__group__id=group)
    with armed(spark, "prepare.prepared=hold", tmp_path / "faults") as fault:
        started = query.start(kafka_frame(spark, cluster, source))
        fault.wait()
        log = damage(query, 1)
        fault.release()
        text = ended_by(started, "EOS_CHECKPOINT_DAMAGED")
    assert "offsets/1" in text
    assert "backup" in text
    assert view.values(out) == []
    assert view.group(group, source) == {(source, 0): 0}
    wait_for(lambda: not view.held(out), "the abort")
    (query.checkpoint / "offsets" / "1").write_text(log)
    query.run(kafka_frame(spark, cluster, source))
    assert view.values(out) == ["a"]
    assert view.group(group, source) == view.ends(source)


def damage(query: Sink, batch: int) -> str:
    """Cut off the end of an offset log; its text as it was."""
    log = query.checkpoint / "offsets" / str(batch)
    log.with_name(f".{batch}.crc").unlink()
    text = log.read_text()
    log.write_text(text[:-5])
    return text


@pytest.mark.parametrize(
    ("config", "says"),
    [({"cleanup_policy": "delete"}, ""), ({"unclean_leader_election_enable": "true"}, "kafka-configs.sh")],
    ids=["its decisions would be deleted by age", "its new leader may lack decisions"],
)
def test_a_ledger_that_may_lose_decisions(config, says, files, sink, topic, refused):
    """Rows of a decision that is lost would be written again."""
    out, ledger = topic(), topic(1, **{"cleanup_policy": "compact"} | config)
    query = sink(topic=out, ledger__topic=ledger)
    refused(query, files().add(["a"]).stream(), "EOS_LEDGER_UNSUITABLE", out, ledger, says=says or ledger)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[DevCluster]:
    with DevCluster() as other:
        yield other


@pytest.fixture
def both(topic, elsewhere) -> str:
    """A topic on this cluster and one of the same name, with three rows, on the other one."""
    name = topic()
    elsewhere.create_topic(name)
    write(elsewhere.bootstrap_servers, name, [(0, value) for value in "abc"])
    return name


def without_clusters(query: Sink) -> None:
    """The offset log as versions wrote it that did not note clusters."""
    for log in (query.checkpoint / "offsets").glob("[0-9]*"):
        lines = log.read_text().splitlines()
        lines[2:] = [json.dumps({k: v for k, v in json.loads(line).items() if k != "#cluster"}) for line in lines[2:]]
        log.write_text("\n".join(lines))
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)


def test_offsets_of_another_clusters_topic(spark, elsewhere, both, topic, sink, view):
    """The sink's cluster has a topic of that name, too: its group would get offsets that mean nothing there."""
    out, group = topic(), f"group-{uuid.uuid4()}"
    query = sink(topic=out, offsets__group__id=group)
    text = query.stopped_by(kafka_frame(spark, elsewhere, both), "EOS_OPTION_CONFLICT")
    assert both in text
    assert view.group(group, both) == {}


@pytest.mark.parametrize("noted", [True, False])
def test_a_group_that_is_set_in_mid_life_of_a_query_from_another_cluster(
    noted, spark, elsewhere, both, topic, sink, view
):
    """Whether the offset log notes its cluster or not."""
    out, group = topic(), f"group-{uuid.uuid4()}"
    frame = kafka_frame(spark, elsewhere, both)
    query = sink(topic=out)
    query.run(frame)
    query.forget(1)
    if not noted:
        without_clusters(query)
    sink(topic=out, offsets__group__id=group).stopped_by(frame, "EOS_OPTION_CONFLICT")
    assert view.group(group, both) == {}
    query.run(frame)
    assert view.values(out) == ["a", "b", "c"]


def test_a_topic_that_is_created_anew_keeps_its_group(spark, cluster, topic, sink, view):
    """Its id is another one, and its cluster is not."""
    source, out, group = topic(), topic(), f"group-{uuid.uuid4()}"
    write(cluster.bootstrap_servers, source, [(0, "a")])
    query = sink(topic=out, offsets__group__id=group)
    query.run(kafka_frame(spark, cluster, source))
    anew(view.admin, cluster, source)
    write(cluster.bootstrap_servers, source, [(0, "b"), (0, "c")])
    query.run(kafka_frame(spark, cluster, source, failOnDataLoss="false"))
    assert view.values(out) == ["a", "b", "c"]
    assert view.group(group, source) == view.ends(source)


def test_servers_of_another_cluster_than_the_checkpoints(spark, cluster, elsewhere, both, topic, sink, view):
    """The same offsets are other rows there, even if losses are accepted."""
    out = topic()
    frame = kafka_frame(spark, elsewhere, both)
    query = sink(topic=out)
    query.run(frame)
    write(cluster.bootstrap_servers, both, [(0, value) for value in "12345"])
    query.stopped_by(kafka_frame(spark, cluster, both, failOnDataLoss="false"), "EOS_SOURCE_CLUSTER_CHANGED")
    query.run(frame)
    assert view.values(out) == ["a", "b", "c"]


def test_a_group_that_source_and_sink_both_have(spark, cluster, topic, sink, view):
    """The one is a report of what is done, the other part of the decision: nobody could tell whose an offset is."""
    source, out, group = topic(), topic(), f"group-{uuid.uuid4()}"
    rows = spark.readStream.format("eos-kafka").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    rows = rows.option("subscribe", source).option("startingOffsets", "earliest").option("offsets.group.id", group)
    sink(topic=out, offsets__group__id=group).stopped_by(rows.load().select("value"), "EOS_OPTION_CONFLICT")
    assert view.ends(out) == {(out, 0): 0}
    write(cluster.bootstrap_servers, source, [(0, "a")])
    sink("other", topic=out, offsets__group__id=f"{group}-2").run(rows.load().select("value"))
    wait_for(lambda: view.group(group, source) == view.ends(source), "the source's own group")
    assert view.group(f"{group}-2", source) == view.ends(source)


def test_a_group_with_active_members(spark, cluster, topic, sink, refused, view):
    """Their offsets would be overwritten; they are named. When they are gone, the query runs."""
    source, out, group = topic(), topic(), f"group-{uuid.uuid4()}"
    frame = kafka_frame(spark, cluster, source)
    client = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "somebody", "log_level": 0}
    member = Consumer(client | {"group.id": group})
    try:
        member.subscribe([source])
        wait_for(lambda: member.poll(0.1) is None and member.assignment(), "the assignment")
        query = sink(topic=out, offsets__group__id=group)
        text = refused(query, frame, "EOS_GROUP_ACTIVE", out, says=group)
        assert "somebody" in text
    finally:
        member.close()
    query.run(frame)
