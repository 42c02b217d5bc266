"""Spark's own Kafka source beside our sink: the guarantee is the sink's, whoever reads, and so are the group's offsets.

The built-in source comes in jars, which a JVM takes at its start: each run of the query is a program of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_eos.tools.devcluster.jars import SPARK_KAFKA, resolve
from tests.support.judges.kafka_view import TIMEOUT, KafkaView
from tests.support.kills import query
from tests.support.kills.killed_program import running
from tests.support.kills.scene import PARTITIONS, Scene
from tests.support.runs.case_cover import in_turn, one_for_every_day
from tests.support.waiting import wait_for

#: Micro-batch 0 is not empty here, as it is with our source: what is held is in micro-batch 1.
_IN_BATCH_1 = {
    "prepare.wrote": f"prepare.wrote=hold@{PARTITIONS + 2}",
    "commit.verified": "commit.verified=hold@2",
    "commit.decided": "commit.decided=hold@2",
    "commit.between": "commit.between=hold@2",
    "commit.cleaned": "commit.cleaned=hold@2",
}


@pytest.fixture
def scene(view: KafkaView, topic: Callable[..., str], tmp_path: Path) -> Scene:
    """Two transactions and an aborted one in the input, and a query that reads it with the built-in source."""
    jars = ",".join(map(str, resolve(SPARK_KAFKA)))
    return Scene(view, topic, tmp_path, source="kafka", conf={"spark.jars": jars})


def drained(scene: Scene, folder: str) -> str:
    """Run the query to the end of what it may read; its id. ``folder`` is for its log, and must be new."""
    (scene.folder / folder).mkdir()
    with running(scene.spec, "", scene.folder / folder) as whole:
        whole.wait_for_end(0)
        return whole.query_id


def open_transaction(scene: Scene) -> Producer:
    """One more row for each partition, in a transaction that is open: its producer."""
    config = {"bootstrap.servers": scene.view.bootstrap_servers, "broker.address.family": "v4", "log_level": 0}
    # Longer than the query may take on a busy machine: by default the broker aborts after a minute.
    own = {"transactional.id": f"slow-writer-of-{scene.input}", "transaction.timeout.ms": 600_000}
    producer = Producer(config | own)
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    for p, values in scene.values.items():
        values.append(f"{p}.{len(values):03d}")
        producer.produce(scene.input, values[-1], partition=p)
    assert producer.flush(TIMEOUT) == 0
    return producer


@pytest.mark.chaos
def test_rows_and_offsets_of_the_built_in_source(scene, view):
    """It stops before an open transaction, and so do the offsets; once that is committed, both go on to the end."""
    before = view.ends(scene.input)
    seen = {p: [query.expected(value) for value in values] for p, values in scene.values.items()}
    slow = open_transaction(scene)
    scene.feed()  # committed, but behind the open one
    drained(scene, "first")
    rows = view.rows(scene.output)
    assert {p: [row.value.decode() for row in rows if row.partition == p] for p in range(PARTITIONS)} == seen
    assert view.group(scene.group, scene.input) == view.ends(scene.input, committed=True) == before
    slow.commit_transaction(TIMEOUT)
    wait_for(lambda: view.held(scene.input) == {}, "the markers of the input")
    scene.check(drained(scene, "second"))


@in_turn("the built-in source")
@pytest.mark.parametrize("point", one_for_every_day("the built-in source", list(_IN_BATCH_1)))
def test_a_kill_loses_and_doubles_nothing_that_the_built_in_source_read(point, scene):
    """Driver and JVM, before the decision and after it: the replay compares equal, and the offsets are those of the
    input's end."""
    with scene.recorded():
        with running(scene.spec, _IN_BATCH_1[point], scene.folder) as victim:
            victim.wait_at(point)
            seen = len(scene.view.values(scene.output))
            victim.kill()
        assert 0 < seen < sum(map(len, scene.values.values())), "the kill was to come in mid-stream"
        scene.check(drained(scene, "restarted"))
