"""Topics of a running cluster."""

from __future__ import annotations

from spark_eos.tools.devcluster.tools import HANG_S


def create_topic(servers: str, name: str, partitions: int, *, replication: int, **config: object) -> None:
    """Create a topic. ``config``: its settings, with underscores or dots: cleanup_policy="compact". Raises
    confluent_kafka.KafkaException as the broker refuses."""
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = NewTopic(
        name,
        num_partitions=partitions,
        replication_factor=replication,
        config={key.replace("_", "."): str(value) for key, value in config.items()},
    )
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([topic])[name].result(timeout=HANG_S)
