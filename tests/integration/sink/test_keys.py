"""Which partitions keys go to, by the sink's options and by what the query began with."""

from __future__ import annotations

from zlib import crc32


def test_a_query_keeps_the_partitioner_that_it_began_with(files, sink, topic, view):
    """As one from before murmur2 was the default: rows of a key that has a partition do not go to another one."""
    out, keys = topic(4), [f"key {i}".encode() for i in range(40)]
    source = files("key binary, value string")
    sink(topic=out, kafka__partitioner="consistent_random").run(source.add([(key, "v") for key in keys]).stream())
    sink(topic=out).run(source.add([(key, "w") for key in keys]).stream())  # the same checkpoint
    assert sorted({(row.key, row.partition) for row in view.rows(out)}) == sorted((k, crc32(k) % 4) for k in keys)
    assert len(view.rows(out)) == 80
