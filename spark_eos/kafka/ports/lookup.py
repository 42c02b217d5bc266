"""The port ``Data``: what became of a transaction, by the log itself."""

from __future__ import annotations

from spark_eos.kafka.admin.topics import begin_offsets
from spark_eos.kafka.codes import OK, UNAUTHORIZED, Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.errors import unreadable
from spark_eos.kafka.records.batches import Damage, UnsupportedFormat, walk_batches
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.protocol.head import Pair, Probe
from spark_eos.protocol.ports import Found


class RecordLookup:
    """The port ``Data``: what became of a transaction, by the log itself. Only batch headers are read."""

    def __init__(self, kafka: KafkaProperties) -> None:
        self._kafka = kafka

    def look(self, pair: Pair, probe: Probe) -> Found | None:
        fetched = fetch_once(self._kafka, probe.topic, probe.partition, probe.offset, max_bytes=1)
        if fetched is None:
            return None
        answer, data = fetched
        if answer.error == Code.OFFSET_OUT_OF_RANGE:  # then the answer holds no offsets
            begin = begin_offsets(self._kafka, {probe.topic: [probe.partition]})[probe.topic][probe.partition]
            return Found.GONE if probe.offset < begin else None
        if answer.error in UNAUTHORIZED:
            raise unreadable(probe.topic, self._kafka)
        if answer.error != OK or answer.stable <= probe.offset:
            return None
        try:
            batch = next((b for b in walk_batches(data, answer.size, answer.aborted) if b.last >= probe.offset), None)
        except (Damage, UnsupportedFormat):
            return None  # no outcome; another fetch, of another leader perhaps, may be sound
        if batch is None or batch.base > probe.offset:
            return Found.GONE
        if (batch.producer_id, batch.epoch) != (pair.producer_id, pair.epoch):
            return Found.GONE
        return Found.MISSING if batch.aborted else Found.THERE
