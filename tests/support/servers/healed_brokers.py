"""Makes the three brokers whole again."""

from __future__ import annotations

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView, open_view
from tests.support.waiting import TIMEOUT, wait_for

BROKERS = 3


def heal(cluster: DevCluster) -> None:
    """Bring back every broker; return when every replica is in sync."""
    for i in range(cluster.size):
        cluster.resume(i)
        cluster.start(i, wait=False)
    cluster.wait_ready()
    with open_view(cluster.bootstrap_servers) as view:
        wait_for(lambda: not _out_of_sync(view), "replicas in sync")


def _out_of_sync(view: KafkaView) -> list[tuple[str, int]]:
    topics = view.admin.list_topics(timeout=TIMEOUT).topics.values()
    return [
        (topic.topic, p.id) for topic in topics for p in topic.partitions.values() if set(p.isrs) != set(p.replicas)
    ]
