"""Reads many small ranges by one Fetch request to each leader.

A range is used only if it arrives complete. Anything that is missing, damaged or large is left to the reader of a
single range, which waits, tries other brokers, and raises errors.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import ConnectionFailed, EosError
from spark_eos.kafka.admin.topics import id_bytes
from spark_eos.kafka.codes import OK
from spark_eos.kafka.config.java_names import canonical
from spark_eos.kafka.config.values import integer
from spark_eos.kafka.records.batches import OtherEpoch
from spark_eos.kafka.requests.fetch import Answers, fetch_many, is_supported_by_id
from spark_eos.kafka.requests.offset_for_leader_epoch import UNKNOWN
from spark_eos.source.decode import decode
from spark_eos.source.epochs import RangeEpochs
from spark_eos.source.fetching import Fetching

#: Bytes to request from each leader at most: behind the ranges there may be deep backlogs, which are not wanted.
MOST_BYTES = 4 * 1024 * 1024
#: Bytes to request for each range, and for each of its offsets in addition.
_BYTES, _BYTES_PER_OFFSET = 16 * 1024, 1280
#: Bytes of a range's rows when decoded, at most: they may be a thousand times as large as the compressed response.
_DECODED_BYTES = 16 * 1024 * 1024
#: Seconds to wait for all leaders together. The reader of a single range may wait longer.
_ANSWER_S = 5.0


def gather(fetching: Fetching, ranges: Sequence[OffsetRange]) -> Answers:
    """Return the leaders' responses for these ranges, without leaders that did not respond. Empty if two ranges are
    of one partition, or if only some of the ranges have a topic id, as a request names all its topics in one way."""
    user = canonical(fetching.client.properties)
    most = min(MOST_BYTES, integer(user, "fetch.max.bytes", MOST_BYTES))
    each = min(most, integer(user, "max.partition.fetch.bytes", most))
    wanted = {(r.topic, r.partition): (r.start, min(each, _BYTES + _BYTES_PER_OFFSET * r.size)) for r in ranges}
    if len(wanted) < len(ranges):
        return {}
    ids = {r.topic: id_bytes(r.topic_id) for r in ranges}
    if not all(ids.values()) and any(ids.values()):
        return {}
    try:
        by_id = all(ids.values()) and is_supported_by_id(fetching.client)
        return fetch_many(
            fetching.client,
            wanted,
            isolation=fetching.isolation,
            max_bytes=most,
            timeout_s=_ANSWER_S,
            ids=ids if by_id else None,
        )
    except ConnectionFailed:
        return {}


def take(fetching: Fetching, range_: OffsetRange, answers: Answers) -> list[pa.RecordBatch] | None:
    """Take the rows of a range, in order, out of the responses; None if they are not complete, or too large."""
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
    except (EosError, OtherEpoch):
        return None
    # The last record of the range is of the leader that it had, so that all records before it are the same, too.
    same = epochs.at_end or range_.last_epoch == UNKNOWN
    return batches if same and decoded.next_offset >= range_.end else None
