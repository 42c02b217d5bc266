"""Produce requests: encoded record batches, for many partitions in one request.

With version 12 of the request, the broker adds the partition to the transaction by itself (KIP-890). With lower
versions, AddPartitionsToTxn has to come first.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.connection import Connection
from spark_eos.kafka.net.schema import NO_TAGS, Api, FieldReader, text, varint
from spark_eos.kafka.transactions import FENCING_END

#: The first version that adds partitions to the transaction by itself, and the last one with topic names.
_FENCING = Api("Produce", 0, 12, 12)
#: Older versions with the same fields, since Kafka 2.8.
_PLAIN = Api("Produce", 0, 9, 11)
_ALL_REPLICAS = -1


@dataclass(frozen=True)
class ProduceResponse:
    """The response to the request with this number. ``errors``: Kafka's code for each of its partitions; ``offsets``:
    the first record's offset in each partition to which a batch was appended."""

    number: int
    errors: Mapping[TopicPartition, int]
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


class ProduceConnection(Connection[frozenset[TopicPartition]]):
    """A connection to one broker, for one transaction at a time. ``version``: that of the requests."""

    kept_each = 1
    version = _FENCING.last

    def send(self, transactional_id: str, batches: Mapping[TopicPartition, bytes | memoryview], timeout_ms: int) -> int:
        """Send one batch to each of these partitions, with acks=all within ``timeout_ms``. Returns the request's
        number."""
        pieces: list[bytes | memoryview] = [text(transactional_id) + struct.pack(">hi", _ALL_REPLICAS, timeout_ms)]
        topics: dict[str, list[tuple[int, bytes | memoryview]]] = {}
        for (topic, partition), data in batches.items():
            topics.setdefault(topic, []).append((partition, data))
        pieces.append(varint(len(topics) + 1))
        for topic, partitions in topics.items():
            pieces.append(text(topic) + varint(len(partitions) + 1))
            for partition, data in partitions:
                pieces += struct.pack(">i", partition) + varint(len(data) + 1), data, NO_TAGS
            pieces.append(NO_TAGS)
        pieces.append(NO_TAGS)
        number = self.ask(_FENCING.api, self.version, pieces, frozenset(batches))
        self.push()
        return number

    def answers(self) -> list[ProduceResponse]:
        """Return the responses that have arrived, in the order of the requests. Raises OSError."""
        answers = self.receive(_read)
        if any(errors.keys() != partitions for _, partitions, (errors, _) in answers):
            raise OSError("the broker's answer is not about the partitions that were asked for")
        return [ProduceResponse(number, errors, offsets) for number, _, (errors, offsets) in answers]


_NUMBER = struct.Struct(">i")
#: Partition, error, first offset, time of the append, start of the log
_PARTITION = struct.Struct(">ihqqq")


def _read(fields: FieldReader) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Read error codes and first offsets by partition. Other fields, such as the records at fault, are skipped."""
    errors: dict[TopicPartition, int] = {}
    offsets: dict[TopicPartition, int] = {}
    for _ in range(fields.count()):
        topic = fields.text()
        for _ in range(fields.count()):
            partition, error, offset, _, _ = fields.unpack(_PARTITION)
            for _ in range(fields.count()):
                fields.unpack(_NUMBER)
                fields.text()
                fields.skip_tags()
            fields.text()
            fields.skip_tags()
            errors[topic, partition] = error
            if offset >= 0:
                offsets[topic, partition] = offset
        fields.skip_tags()
    return errors, offsets


def version(client: BrokerClient, node: int, endtxn_version: int) -> int:
    """Return the version for a transaction that is ended by this version of EndTxn. Raises OSError and KafkaError
    (EOS_BROKER_UNSUITABLE)."""
    return _FENCING.last if endtxn_version >= FENCING_END else client.version(node, _PLAIN)
