"""Which partitions keys go to, by the sink's options and by what the query began with."""

from __future__ import annotations

from zlib import crc32

import pytest
from kafka.partitioner.default import murmur2


@pytest.mark.parametrize(
    ("options", "partition"),
    [
        ({}, lambda key: murmur2(key) % 2**31 % 4),
        ({"kafka__partitioner": "consistent_random"}, lambda key: crc32(key) % 4),
    ],
    ids=["Java", "librdkafka"],
)
def test_keys_choose_partitions_as_a_client_does(options, partition, files, sink, topic, view):
    """By murmur2, or on request by CRC-32."""
    out, keys = topic(4), [f"key {i}".encode() for i in range(40)]
    sink(topic=out, **options).run(files("key binary, value string").add([(key, "v") for key in keys]).stream())
    assert {row.key: row.partition for row in view.rows(out)} == {key: partition(key) for key in keys}


def test_a_query_keeps_the_partitioner_that_it_began_with(files, sink, topic, view):
    """As one from before murmur2 was the default: rows of a key that has a partition do not go to another one."""
    out, keys = topic(4), [f"key {i}".encode() for i in range(40)]
    source = files("key binary, value string")
    sink(topic=out, kafka__partitioner="consistent_random").run(source.add([(key, "v") for key in keys]).stream())
    sink(topic=out).run(source.add([(key, "w") for key in keys]).stream())  # the same checkpoint
    assert sorted({(row.key, row.partition) for row in view.rows(out)}) == sorted((k, crc32(k) % 4) for k in keys)
    assert len(view.rows(out)) == 80
