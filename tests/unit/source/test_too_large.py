"""Records that are too large when they are decompressed: by the option, named with their offsets, however they come."""

from __future__ import annotations

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import KafkaError
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import batch_options, stream_options
from spark_eos.source.decode import decode
from spark_eos.source.fetching import Fetching
from tests.support.judges.record_batches import CODECS, encode, plain

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
RANGE = OffsetRange("t", 3, 0, 1000)


@pytest.mark.parametrize("parse", [stream_options, batch_options])
@pytest.mark.parametrize(("given", "most"), [({}, 128 << 20), ({"maxDecompressedBytes": "2k"}, 2048)])
def test_the_limit_goes_to_the_tasks(parse, given, most):
    """The option is one of streams and of batches."""
    options = parse({**OPTIONS, **given})
    assert Fetching.from_options(BrokerClient(options.kafka), options).max_decompressed_bytes == most


@pytest.mark.parametrize("codec", sorted(set(CODECS) - {""}))
@pytest.mark.parametrize("records", [(bytes(5000),), (bytes(10),) * 500], ids=["one record", "many"])
def test_the_batch_is_named(codec, records):
    """By its offsets; a restart would not help, nor another replica. Batches before it are read, and together they may
    be as large as they like; a batch that is not compressed has its own size."""
    data = encode(plain(0, b"a", codec=codec)) + encode(plain(1, *records, codec=codec))
    decoded = decode(data, RANGE, most_bytes=4000)
    with pytest.raises(KafkaError) as caught:
        list(decoded.batches)
    assert caught.value.condition == "EOS_SOURCE_BATCH_TOO_LARGE" and not caught.value.restart_helps
    assert (caught.value.parameters["offset"], caught.value.parameters["last"]) == (1, len(records))
    assert f"offsets 1 to {len(records)} of t-3 has more than 4,000 bytes" in caught.value.message
    assert "maxDecompressedBytes" in str(caught.value)
    both = encode(plain(0, *records, codec=codec)) + encode(plain(len(records), *records, codec=codec))
    assert sum(b.num_rows for b in decode(both, RANGE, most_bytes=9_500).batches) == 2 * len(records)
    assert sum(b.num_rows for b in decode(encode(plain(0, *records)), RANGE, most_bytes=10).batches) == len(records)
