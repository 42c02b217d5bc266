"""The rows of a range as the plain consumer of `verify` reads them, which shares no code with the source."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.source.schema import arrow_schema
from spark_eos.tools.verify.bounds import PartitionBounds
from spark_eos.tools.verify.reader import RowReader


def by_consumer(kafka: KafkaProperties, range_: OffsetRange) -> pa.Table:
    """The committed rows, with the columns of the source."""
    place = PartitionBounds(range_.topic, range_.partition, range_.start, range_.end, range_.end)
    with RowReader(kafka, "read_committed", lambda _: None) as reader:
        messages = [message for some in reader.read(place, range_.end) for message in some]
    kinds, millis = zip(*map(Message.timestamp, messages), strict=True) if messages else ((), ())
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        pa.array(list(map(Message.topic, messages)), pa.string()),
        pa.array(list(map(Message.partition, messages)), pa.int32()),
        pa.array(list(map(Message.offset, messages)), pa.int64()),
        pa.array(millis, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")),
        pc.subtract(pa.array(kinds, pa.int32()), pa.scalar(1, pa.int32())),  # they count from 0, Spark from -1
    ]
    return pa.Table.from_arrays(columns, schema=arrow_schema(False)).combine_chunks()
