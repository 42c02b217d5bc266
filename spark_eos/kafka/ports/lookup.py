"""The port ``Data``: what became of a transaction, by the log itself."""

from __future__ import annotations

from spark_eos.kafka.admin.topics import begin_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import OFFSET_OUT_OF_RANGE, OK, BrokerClient
from spark_eos.protocol.head import Pair, Probe
from spark_eos.protocol.ports import Found


class RecordLookup:
    """The port ``Data``: what became of a transaction, by the log itself. Only batch headers are read."""

    def __init__(self, wire: BrokerClient, kafka: KafkaProperties) -> None:
        self._wire, self._kafka = wire, kafka

    def look(self, pair: Pair, probe: Probe) -> Found | None:
        fetched = self._wire.fetch(probe.topic, probe.partition, probe.offset, records=False, max_bytes=1)
        if fetched is None:
            return None
        if fetched.error == OFFSET_OUT_OF_RANGE:  # then the answer holds no offsets
            begin = begin_offsets(self._kafka, {probe.topic: [probe.partition]})[probe.topic][probe.partition]
            return Found.GONE if probe.offset < begin else None
        if fetched.error != OK or fetched.stable <= probe.offset:
            return None
        for batch in fetched.batches:
            if batch.first <= probe.offset <= batch.last:
                if (batch.producer_id, batch.producer_epoch) != (pair.producer_id, pair.epoch):
                    return Found.GONE
                return Found.MISSING if batch.aborted else Found.THERE
        return Found.GONE
