"""Selects record batches that a producer may write unchanged, and gives them its own header. No I/O.

A broker's own checks do not suffice: it accepts a batch that is not part of the transaction, one with gaps, and one
with a delete horizon or an append time, and readers would get wrong records. So a batch passes only if it has nothing
besides its codec and its records that matters to readers; any other is decoded and encoded again.
"""

from __future__ import annotations

from spark_eos.kafka.records.batches import CODEC, LAST_CODEC, TRANSACTIONAL, RecordBatch
from spark_eos.kafka.records.encode import HEADER_BYTES, Encoder, Sealed

_MAY_HAVE = CODEC | TRANSACTIONAL

#: Below so many bytes, by codec, batches that follow one another cost less if their records are put together: each has
#: a request of its own, which costs as much as decoding and encoding some hundred rows, or as compressing some KiB.
_SMALL = {0: 64 * 1024, 1: 4 * 1024, 2: 32 * 1024, 3: 32 * 1024, 4: 16 * 1024}


def passes(batch: RecordBatch, start: int, end: int) -> bool:
    """Return whether a producer may write a verified batch unchanged, for offsets ``start`` to ``end``, exclusive.

    It must contain only wanted records, without gaps; timestamps that no broker has set; no mark of the log cleaner;
    and a known codec.
    """
    return (
        batch.visible
        and not batch.attributes & ~_MAY_HAVE
        and batch.codec <= LAST_CODEC
        and batch.count == batch.last - batch.base + 1
        and start <= batch.base
        and batch.last < end
    )


def is_small(batch: RecordBatch) -> bool:
    """Return whether a batch is better merged with the following ones."""
    return batch.size < _SMALL.get(batch.codec, 0)


def reseal(data: bytearray, batch: RecordBatch, encoder: Encoder, sequence: int) -> Sealed:
    """Return a batch that `passes`, under a header of the encoder's transaction, with the old one's codec, timestamps
    and number of records.

    Its records are not copied: the new header replaces the old one in ``data``, which belongs to the result from now
    on.
    """
    view = memoryview(data)
    begin = batch.start - HEADER_BYTES
    times = batch.time, batch.max_time
    header = encoder.header(batch.codec, times, sequence, batch.count, view[batch.start : batch.stop])
    view[begin : batch.start] = header
    return Sealed(view[begin : batch.stop].toreadonly(), sequence, batch.count)
