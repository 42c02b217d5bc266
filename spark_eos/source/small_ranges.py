"""The rows of many small ranges, by one request to each leader.

What comes this way is whole, or not used: whatever is missing, wrong or large is left to the reading of that range
alone, which waits, asks others, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_eos.errors import ConnectionFailed, EosError
from spark_eos.kafka.admin.topics import id_bytes
from spark_eos.kafka.codes import OK
from spark_eos.kafka.config.java_names import canonical
from spark_eos.kafka.config.values import integer
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.records.batches import OtherEpoch, UnsupportedFormat
from spark_eos.kafka.requests.fetch import Answers, fetch_many, is_supported_by_id
from spark_eos.kafka.requests.offset_for_leader_epoch import UNKNOWN
from spark_eos.options.parse import Fetching
from spark_eos.source.decode import decode
from spark_eos.source.epochs import RangeEpochs
from spark_eos.topic_partition import OffsetRange

#: Of each leader, at the most. There may be deep backlogs behind the ranges, of which nothing is wanted.
MOST_BYTES = 4 * 1024 * 1024
#: Of each range: so many, and so many more for each of its offsets.
_BYTES, _BYTES_PER_OFFSET = 16 * 1024, 1280
#: Of the rows of a range, decoded: what compresses well may be a thousand times as large as the answer.
_DECODED_BYTES = 16 * 1024 * 1024
#: Seconds for all leaders together. The reading of a range alone may wait for longer.
_ANSWER_S = 5.0


def gather(fetching: Fetching, ranges: Sequence[OffsetRange]) -> Answers:
    """What leaders say of these ranges, of other partitions each; nothing of those that have not answered. One request
    names all topics in one way: where only some have to be the topics with their ids, nobody is asked."""
    user = canonical(fetching.kafka)
    most = min(MOST_BYTES, integer(user, "fetch.max.bytes", MOST_BYTES))
    each = min(most, integer(user, "max.partition.fetch.bytes", most))
    wanted = {(r.topic, r.partition): (r.start, min(each, _BYTES + _BYTES_PER_OFFSET * r.size)) for r in ranges}
    if len(wanted) < len(ranges):
        return {}
    ids = {r.topic: id_bytes(r.topic_id) for r in ranges}
    if not all(ids.values()) and any(ids.values()):
        return {}
    client = broker_client(fetching.kafka)
    try:
        by_id = all(ids.values()) and is_supported_by_id(client)
        return fetch_many(
            client,
            wanted,
            isolation=fetching.isolation,
            max_bytes=most,
            timeout_s=_ANSWER_S,
            ids=ids if by_id else None,
        )
    except ConnectionFailed:
        return {}


def take(fetching: Fetching, range_: OffsetRange, answers: Answers) -> list[pa.RecordBatch] | None:
    """The rows of a range, in order, taken out of the answers; None where they have not come whole, or are large."""
    answer, data = answers.pop((range_.topic, range_.partition), (None, b""))
    if answer is None or answer.error != OK or not answer.size:
        return None
    batches: list[pa.RecordBatch] = []
    size = 0
    epochs = RangeEpochs(range_)
    try:
        decoded = decode(
            data,
            range_,
            answer.aborted,
            with_headers=fetching.include_headers,
            see=epochs.see,
            most_bytes=fetching.max_decompressed_bytes,
        )
        for batch in decoded.batches:
            batches.append(batch)
            size += batch.nbytes
            if size > _DECODED_BYTES:
                return None
    except (EosError, UnsupportedFormat, OtherEpoch):
        return None
    # The last record of the range is of the leader that it had, so that all before it is what it was, too.
    same = epochs.at_end or range_.last_epoch == UNKNOWN
    return batches if same and decoded.next_offset >= range_.end else None
