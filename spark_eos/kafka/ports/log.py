"""The port ``Data``, whole: what became of a transaction, and what is open in a partition."""

from __future__ import annotations

from spark_eos.kafka.admin.topics import begin_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.ports.lookup import RecordLookup
from spark_eos.kafka.requests.describe_producers import describe_producers
from spark_eos.protocol.ports import PartitionState


class PartitionLog(RecordLookup):
    """What a partition's leader says of its log."""

    def __init__(self, client: BrokerClient, kafka: KafkaProperties) -> None:
        super().__init__(kafka)
        self._client, self._properties = client, kafka

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """None without an answer. Raises as `begin_offsets` does.

        A leader that names no producer at all has not answered: it knows those of the last day, open or not.
        """
        producers = describe_producers(self._client, topic, partition)
        if not producers:
            return None
        begin = begin_offsets(self._properties, {topic: [partition]})[topic][partition]
        open_ones = {
            (p.producer_id, p.producer_epoch): p.current_txn_start_offset
            for p in producers
            if p.current_txn_start_offset >= 0
        }
        return PartitionState(begin, open_ones)
