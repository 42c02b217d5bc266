"""Which record batches a producer may write as they are, and those batches under its own header. No I/O.

What a broker checks of a batch is not enough: it takes one that is not of the transaction, one with gaps, and one with
a delete horizon or an append time of its own, and what readers then see is wrong. So a batch passes only if nothing but
its codec is of interest to a reader besides its records; any other is decoded and encoded anew.
"""

from __future__ import annotations

from spark_eos.kafka.records.batches import CODEC, LAST_CODEC, TRANSACTIONAL, RecordBatch
from spark_eos.kafka.records.encode import HEADER_BYTES, Encoder, Sealed

_MAY_HAVE = CODEC | TRANSACTIONAL

#: Below so many bytes, by codec, batches that follow one another cost less if their records are put together: each has
#: a request of its own, which costs as much as decoding and encoding some hundred rows, or as compressing some KiB.
_SMALL = {0: 64 * 1024, 1: 4 * 1024, 2: 32 * 1024, 3: 32 * 1024, 4: 16 * 1024}


def passes(batch: RecordBatch, start: int, end: int) -> bool:
    """Whether a producer may write a verified batch as it is, if offsets ``start`` to ``end``, exclusive, are asked
    for.

    It holds rows, all of them are asked for, and none is missing between them; no broker has set their timestamps, and
    no cleaner has marked it; its codec is known.
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
    """Whether a batch is better put together with others that follow it."""
    return batch.size < _SMALL.get(batch.codec, 0)


def reseal(data: bytearray, batch: RecordBatch, encoder: Encoder, sequence: int) -> Sealed:
    """A batch that `passes`, in the encoder's transaction.

    Its records are not copied: the new header takes the place of the old one in ``data``, which belongs to what is
    returned from now on. Of the old header it keeps codec, timestamps and the number of records.
    """
    view = memoryview(data)
    begin = batch.start - HEADER_BYTES
    times = batch.time, batch.max_time
    header = encoder.header(batch.codec, times, sequence, batch.count, view[batch.start : batch.stop])
    view[begin : batch.start] = header
    return Sealed(view[begin : batch.stop].toreadonly(), sequence, batch.count)
