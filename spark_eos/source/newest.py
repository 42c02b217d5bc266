"""The newest records of some topics, for a look at them before a query starts."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_eos.base.topic_partition import OffsetRange, by_topic, flat
from spark_eos.kafka.admin.topics import begin_offsets, end_offsets
from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.fetch import Answers
from spark_eos.options.parse import SourceOptions
from spark_eos.source.decode import decode
from spark_eos.source.fetching import Fetching
from spark_eos.source.small_ranges import gather
from spark_eos.source.watch import TopicWatch

#: The newest records of so many partitions, and so many of each.
_PARTITIONS, _RECORDS = 3, 128
#: Bytes of a record batch, decompressed.
_BATCH_BYTES = 16 << 20
#: Seconds to wait for brokers, for each of the requests.
_ANSWER_S = 10.0


def newest_records(client: BrokerClient, options: SourceOptions) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yield the newest records of some partitions, each as batches of `arrow_schema`, as far as a query may read them.
    Raises EosError."""
    ranges = _newest(client, options)
    answers = gather(Fetching.from_options(client, options), ranges)
    for range_ in ranges:
        yield _records(options, range_, answers)


def _newest(client: BrokerClient, options: SourceOptions) -> list[OffsetRange]:
    """Return the last offsets of the first partitions of each topic that are not empty."""
    there = TopicWatch(client, options.selection, options.isolation, looks_only=True).topics()
    ends = flat(end_offsets(client, there.partitions, options.isolation, _ANSWER_S))
    chosen = sorted(
        (partition for partition, end in ends.items() if end), key=lambda partition: (partition[1], partition[0])
    )
    begins = flat(begin_offsets(client, by_topic(chosen[:_PARTITIONS]), _ANSWER_S))
    return [
        OffsetRange(*partition, max(begin, ends[partition] - _RECORDS), ends[partition], there.ids[partition[0]])
        for partition, begin in begins.items()
        if begin < ends[partition]
    ]


def _records(options: SourceOptions, range_: OffsetRange, answers: Answers) -> Iterator[pa.RecordBatch]:
    """Yield the records that the leader has answered with for the range, which need not be all of it. Raises
    EosError."""
    answer, data = answers.get((range_.topic, range_.partition), (None, b""))
    if answer is None or answer.error != OK or not answer.size:
        return
    most_bytes = min(_BATCH_BYTES, options.max_decompressed_bytes)
    yield from decode(data, range_, answer.aborted, with_headers=options.include_headers, most_bytes=most_bytes).batches
