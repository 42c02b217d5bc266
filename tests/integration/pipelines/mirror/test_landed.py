"""Rows of which no answer tells the offset: the map says where they lie all the same, as the log has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView, open_view
from tests.support.queries.mirrors import Mirror, check_same
from tests.support.servers.proxy import Proxy
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT, wait_for

#: Record batches in each of two partitions, and rows of each: one task has all of them. A mirror puts none of these
#: batches together with others, as they are large enough; it sends the first one of a partition alone, others at once.
BATCHES, ROWS, PADDING = 4, 60, bytes(1200)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """In front of the target's broker."""
    with closing(Proxy()) as made:
        yield made


@pytest.fixture
def behind(proxy: Proxy, version: dict[str, Any]) -> Iterator[DevCluster]:
    """The target, one broker."""
    with DevCluster(proxies=[proxy.port], **version) as cluster:
        proxy.upstream = cluster.broker(0).proxied_port
        yield cluster


def feed(servers: str, topic: str) -> None:
    """So many batches for each partition, none of which is sent before it is whole."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 60_000})
    for batch in range(BATCHES):
        for p in range(2):
            for i in range(ROWS):
                producer.produce(topic, b"row %d.%d.%d " % (p, batch, i) + PADDING, partition=p)
        assert producer.flush(TIMEOUT) == 0


def test_a_broker_that_is_restarted_between_rows_and_their_answers(
    proxy: Proxy, behind: DevCluster, topic, view: KafkaView, spark, tmp_path: Path
) -> None:
    """It then knows a producer's last batch only, and calls those before it out of order. Where they lie is read from
    the log, and read once more where that comes damaged."""
    name = topic(2, retention_ms=-1)
    feed(view.bootstrap_servers, name)
    with open_view(behind.bootstrap_servers) as there:
        copies = Mirror(spark, view, there, tmp_path / "mirror", name, prefix="late.")
        copies.writes = {"kafka.bootstrap.servers": proxy.address}
        with armed(spark, "prepare.wrote=hold@2", tmp_path / "faults") as fault:
            query = copies.start()
            fault.wait()
            wait_for(lambda: min(there.ends(f"late.{name}").values()) >= ROWS, "the first batches")
            wait_for(lambda: not proxy.awaited, "the answers to them")  # only then, others are sent
            proxy.lose(answers=True)
            fault.release()
            wait_for(lambda: set(there.ends(f"late.{name}").values()) == {BATCHES * ROWS}, "all rows in the log")
            proxy.cut()
            behind.stop(0)
            behind.start(0)
            proxy.restore()
            proxy.flip(within=b"row ")  # of the target's rows, there are answers to `rows_in_log` alone
            wait_for(lambda: proxy.flips or not query.isActive, "a look into the log")
            proxy.restore()
            assert query.awaitTermination(TIMEOUT)
        assert proxy.flips > 0
        check_same(copies, name)
        assert there.open_transactions(query.id) == set()
