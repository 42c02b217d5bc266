"""What the source's user may not do is named by the task that finds out."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from spark_eos.errors import KafkaError
from spark_eos.options.parse import stream_options
from spark_eos.source.reader import EosKafkaStreamReader
from tests.support.judges.kafka_view import write
from tests.support.queries.source_calls import fresh, run, values


def test_a_topic_that_may_not_be_read(guarded):
    """A task that the broker refuses says where it stood and why; with the right, the same range is read."""
    topic, servers = f"in-{uuid.uuid4()}", guarded.cluster.bootstrap_servers
    guarded.cluster.create_topic(topic)
    write(servers, topic, [(0, "a"), (0, "b")])
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    reader = EosKafkaStreamReader(stream_options(given))
    with guarded.forbidden(ResourceType.TOPIC, "in-", AclOperation.READ):
        with pytest.raises(KafkaError, match=f"{topic}-0 at offset 0, of 0 to 2.*(?i:authorization)") as caught:
            run(reader)
        assert caught.value.condition == "EOS_SOURCE_FETCH"
        assert "grant READ" in caught.value.hint
    batches, _ = run(fresh(reader))
    assert values(batches) == ["a", "b"]
