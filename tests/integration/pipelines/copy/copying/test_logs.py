"""What copying leaves in a broker's log, as Kafka's own tool for that prints it."""

from __future__ import annotations

import re
import time
import uuid

import pytest
from confluent_kafka import Producer

from spark_eos.tools.devcluster import DevCluster
from tests.support.waiting import TIMEOUT

TIME = int(time.time() * 1000) - 3_600_000  # rows past their retention go when the broker looks, every 5 minutes
DUMP = "org.apache.kafka.tools.DumpLogSegments"


def batches(cluster: DevCluster, topic: str) -> list[dict[str, str]]:
    """The fields of each record batch of partition 0, markers left out."""
    log = cluster.broker(0).data / f"{topic}-0" / "00000000000000000000.log"
    lines = cluster.java_tool(DUMP, "--deep-iteration", "--files", str(log)).splitlines()
    found = [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines if line.startswith("baseOffset")]
    return [batch for batch in found if batch["isControl"] == "false"]


@pytest.mark.usefixtures("none_is_small")
@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_batches_of_a_copy(codec, cluster, topic, copy, begin):
    """Attributes, producer and sequence numbers are the transaction's; cuts, codec, sizes and times the source's."""
    source, target = topic(), topic()
    writer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": f"test-{uuid.uuid4()}",
            "linger.ms": 20,
            "batch.size": 20_000,
            "compression.type": codec,
        }
    )
    writer.init_transactions(TIMEOUT)
    writer.begin_transaction()
    for i in range(2000):
        writer.produce(source, b"%d" % i * 20, timestamp=TIME + i)
    writer.commit_transaction(TIMEOUT)
    own = begin()
    copy(source, 0, 2001, target, own)
    before, after = batches(cluster, source), batches(cluster, target)
    kept = ("baseOffset", "lastOffset", "count", "size", "compresscodec", "CreateTime", "isTransactional")
    assert len(after) > 3
    assert [[b[name] for name in kept] for b in after] == [[b[name] for name in kept] for b in before]
    assert [int(b["baseSequence"]) for b in after] == [int(b["baseOffset"]) for b in after]
    pair = own.identity()
    assert {(int(b["producerId"]), int(b["producerEpoch"])) for b in after} == {(pair.producer_id, pair.epoch)}
    assert {b["isvalid"] for b in after} == {"true"}
    assert {b["deleteHorizonMs"] for b in after} == {"OptionalLong.empty"}
