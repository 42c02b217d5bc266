"""Single record batches, written by the encoder, as offsets, keys and values: how the ledger is read."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

from spark_eos.kafka.config.properties import Codec
from spark_eos.kafka.records.batches import RecordBatch, TooLargeBatch, UnsupportedFormat, find_batches
from spark_eos.kafka.records.encode import Encoder, Rows
from spark_eos.kafka.records.rows import read_dated_rows, read_rows

KEYS = [b"one", None, b"", b"four"]
VALUES = [b"1" * 1000, b"", None, b"4"]


def sealed(codec: Codec = "none") -> tuple[bytes, RecordBatch]:
    """The rows as one batch, and where its records are."""
    rows = Rows(pa.array(KEYS, pa.binary()), pa.array(VALUES, pa.binary()), np.arange(4))
    ((_, batch),) = Encoder(7, 0, codec).encode(rows, [4], [0])
    ((found,), _) = find_batches(batch.data, len(batch.data), 0, 4, ())
    return batch.data, found


@pytest.mark.parametrize("codec", get_args(Codec))
def test_rows_come_with_their_offsets(codec: Codec):
    """From any codec; nulls stay nulls. A broker gives the batch another first offset than its writer."""
    data, batch = sealed(codec)
    assert list(read_rows(data, replace(batch, base=100))) == list(zip(range(100, 104), KEYS, VALUES, strict=True))


def test_records_have_times():
    """The writer's, or the one time at which a broker has appended the batch."""
    data, batch = sealed("zstd")
    assert [time for time, _ in read_dated_rows(data, batch)] == [0, 1, 2, 3]
    assert [time for time, _ in read_dated_rows(data, replace(batch, append_time=77))] == [77] * 4


def test_a_codec_to_come():
    """It is named."""
    data, batch = sealed()
    with pytest.raises(UnsupportedFormat, match="compression codec 5"):
        list(read_rows(data, replace(batch, codec=5)))


def test_a_batch_that_is_too_large_when_it_is_decompressed():
    """It is not decompressed much beyond the limit."""
    data, batch = sealed("zstd")
    with pytest.raises(TooLargeBatch):
        list(read_rows(data, batch, 1000))
