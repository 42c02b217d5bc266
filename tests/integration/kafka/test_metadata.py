"""What the library remembers of a cluster, when the cluster changes."""

from __future__ import annotations

from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.tools.devcluster import DevCluster
from tests.support.waiting import TIMEOUT


def test_ends_are_told_again_after_a_broker_was_away():
    """Its partitions then have a new leader epoch, which the client does not know by itself."""
    with DevCluster() as cluster:
        cluster.create_topic("away", partitions=2)
        kafka = KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})
        before = end_offsets(broker_client(kafka), {"away": [0, 1]})
        cluster.kill(0)
        cluster.start(0)
        assert end_offsets(broker_client(kafka), {"away": [0, 1]}, timeout_s=TIMEOUT) == before
