"""A transform is tried on the newest records of its topics before its query starts."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from spark_eos.errors import RowError
from spark_eos.kafka.net.client import broker_client
from spark_eos.options.parse import SourceOptions, stream_options
from spark_eos.pipelines.copy.sample import sample
from spark_eos.pipelines.copy.transforming import Chunk
from tests.support.waiting import TIMEOUT


def backwards(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Not a function of each row."""
    return batch.sort_by([("offset", "descending")]).select(["key", "value"])


@pytest.fixture
def reads(cluster) -> Callable[..., SourceOptions]:
    """Options of a source of these topics."""

    def options(*topics: str, **more: str) -> SourceOptions:
        servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        return stream_options({**servers, "subscribe": ",".join(topics), **more})

    return options


def test_a_transform_that_is_none_of_each_row_is_refused_before_anything_is_written(copy, write):
    """By the place; not even a checkpoint is there. With nothing to try it on, it is not."""
    query = copy(2)
    query.start(backwards).awaitTermination(TIMEOUT)
    assert query.checkpoint.exists()
    query = copy(2)
    write(query.source, *(b"%d" % n for n in range(300)), partition=1)
    message = rf"128 records in pieces instead of together: near the record at offset 172 of {query.source}-1"
    with pytest.raises(RowError, match=message) as caught:
        query.start(backwards)
    assert caught.value.condition == "EOS_TRANSFORM_RESULT"
    assert not query.checkpoint.exists()
    assert query.rows() == []


def test_the_newest_committed_records_of_some_partitions_are_the_sample(reads, topic, write, transactions):
    """Of three partitions with records, over all topics, and no more than a number of them, or 256 KiB of keys and
    values; with headers where these are read."""

    def by_place(*topics: str, **more: str) -> dict[tuple[str, int], Chunk]:
        options = reads(*topics, **more)
        taken = sample(broker_client(options.kafka), options)
        return {(one.rows["topic"][0].as_py(), one.rows["partition"][0].as_py()): one for one in taken}

    one, two, empty, large = topic(2), topic(5), topic(1), topic(1)
    assert by_place(one, two, empty) == {}
    write(one, *(b"%d" % n for n in range(200)), partition=0)
    transactions.abort(two, "aborted", partition=0)
    transactions.commit(two, "committed", partition=0)
    for partition in (2, 3, 4):
        write(two, b"%d" % partition, partition=partition)
    found = by_place(one, two, empty)
    assert found.keys() == {(one, 0), (two, 0), (two, 2)}
    assert found[one, 0].first == 72
    assert found[one, 0].rows["value"].to_pylist() == [b"%d" % n for n in range(72, 200)]
    assert found[two, 0].rows["value"].to_pylist() == [b"committed"]
    assert "headers" not in found[one, 0].rows.schema.names
    write(large, *([b"x" * 50_000] * 20), headers=[("h", b"1")])
    (found,) = by_place(large, includeHeaders="true").values()
    assert 1 <= found.rows.num_rows <= 5
    assert found.rows["headers"][0].as_py() == [{"key": "h", "value": b"1"}]
