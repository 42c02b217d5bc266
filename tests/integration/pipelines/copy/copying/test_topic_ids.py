"""A topic that is created anew, under a task that reads it and brokers that have not heard of it.

A broker that lags behind its controller says what was. So it is the leader whose log is read that has to know the id.
"""

from __future__ import annotations

from typing import Any

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.admin.topics import describe_topics
from spark_eos.kafka.net.client import broker_client
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.pipelines.copy import task
from spark_eos.pipelines.copy.plan import CopyPlan
from spark_eos.protocol.head import Digest
from spark_eos.sink.attempt import RowWriter
from spark_eos.source import readable
from spark_eos.source import task as source_task
from spark_eos.source.fetching import Fetching
from spark_eos.source.range_math import RangeTask
from spark_eos.source.task import read_task
from tests.support.judges.conditions import raises
from tests.support.queries.source_calls import anew

ROWS = 6


@pytest.fixture
def was(topic, write, admin, cluster, kafka) -> tuple[str, Any]:
    """A topic that has been created anew, with as many rows as the old one; and what brokers said of that."""
    name = topic()
    write(name, *(b"old %d" % i for i in range(ROWS)))
    before = describe_topics(broker_client(kafka), [name])
    anew(admin, cluster, name)
    write(name, *(b"new %d" % i for i in range(ROWS)))
    return name, before


def test_a_task_copies_nothing_of_a_topic_of_the_same_name(was, topic, kafka, begin, monkeypatch):
    """Though the brokers that it asks, before and after, are behind."""
    name, before = was
    target = topic()
    monkeypatch.setattr(readable, "describe_topics", lambda *_, **__: before)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    source = stream_options({**options, "subscribe": name})
    plan = CopyPlan(source, sink_options({**options, "topic": target, "checkpointLocation": "/c"}), None, "")
    producer: Any = begin()
    rows = RowWriter(plan.sink, producer, Digest.BATCHES)
    reading = readable.ReadableRanges.in_task(source, "", {name: before[name].id})
    writer = task.RangeWriter(plan, reading, rows)
    with raises("EOS_SOURCE_RECREATED"):
        print([stats.rows for stats in writer.written([OffsetRange(name, 0, 0, ROWS)])])


def test_rows_of_several_ranges_by_the_ids_of_their_topics(was, topic, write, kafka, monkeypatch):
    """Leaders are asked together: what is another topic by then is left to the reading of that range, which stops."""
    name, before = was
    other = topic()
    write(other, *(b"other %d" % i for i in range(ROWS)))
    ids = {known: there.id for known, there in describe_topics(broker_client(kafka), [name, other]).items()}
    of_other = OffsetRange(other, 0, 0, ROWS, ids[other])
    rows = []
    with raises("EOS_SOURCE_RECREATED"):
        for batch in read_task(
            Fetching(broker_client(kafka)), RangeTask((of_other, OffsetRange(name, 0, 0, ROWS, before[name].id)))
        ):
            rows += batch.to_pylist()
    assert [row["value"] for row in rows] == [b"other %d" % i for i in range(ROWS)]
    monkeypatch.setattr(source_task, "read_range", lambda *_: pytest.fail("not all was read together"))
    both = read_task(Fetching(broker_client(kafka)), RangeTask((of_other, OffsetRange(name, 0, 1, ROWS, ids[name]))))
    assert sum(batch.num_rows for batch in both) == 2 * ROWS - 1
