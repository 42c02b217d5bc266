"""The end of a transactional id's epochs: the coordinator gives it a new producer id, in the middle of a query.

Each use of an id takes two epochs, one to initialise and one to end. At one batch a second that is every nine hours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from kafka.protocol.producer.transaction import InitProducerIdRequest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.requests import end_txn
from tests.support.judges.kafka_view import KafkaView, write
from tests.support.judges.recorder import judged, of_topics
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT, wait_for

LAST_EPOCH = 32_766  # the coordinator hands out no higher one
TIMEOUT_MS = 60_000

pytestmark = pytest.mark.chaos


def use_up(view: KafkaView, names: Iterable[str], left: int) -> None:
    """Initialise each id, which must exist and be idle, until no more than so many epochs are left."""
    manager = view.kafka_python._manager
    (broker,) = manager.cluster.brokers()

    def initialise(name: str) -> Any:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
            min_version=4,
            max_version=4,
        )
        return manager.send(request, node_id=broker.node_id)

    async def all_of_them() -> None:
        waiting = list(names)
        while waiting:
            sent = {name: initialise(name) for name in waiting}  # no more than the client sends at a time
            for name, future in sent.items():
                answer = await future
                assert answer.error_code in (0, 51), answer
                if answer.error_code == 0 and answer.producer_epoch >= LAST_EPOCH - left:
                    waiting.remove(name)

    manager.run(all_of_them)


def test_transactions_are_ended_across_the_change_of_the_producer_id(view, cluster, topic):
    """A retry with the old pair is told the same as the first answer, though the id has another producer id by then."""
    out, name = topic(), "epochs-run-out"
    kafka = KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})
    client = BrokerClient(kafka)

    def transaction(value: str, commit: bool) -> int:
        producer = ArrowProducer(broker_client(kafka), name, TIMEOUT_MS)
        producer.init()
        producer.write(out, 1, value=pa.array([value]))
        producer.flush()
        pair, version = producer.identity(), producer.endtxn_version
        producer.close()
        for _ in range(3):

            def answered() -> tuple[int] | None:
                code = end_txn.end_txns(client, [(name, pair.producer_id, pair.epoch)], commit, version)[name]
                return None if code in (None, 51) else (code,)

            assert wait_for(answered, f"the end of {value}") == (0,)
        return pair.producer_id

    with judged(view, of_topics(view, out)):
        first = transaction("before", True)
        use_up(view, [name], left=8)
        ids = [transaction(str(i), commit=i % 3 > 0) for i in range(12)]
        assert ids[0] == first
        assert ids[-1] != first
        wait_for(lambda: not view.held(out), "the markers")
    assert view.values(out) == ["before", *(str(i) for i in range(12) if i % 3)]


@pytest.mark.parametrize(("point", "nth"), [("commit.decided", 4), ("commit.between", 3), ("commit.ended", 4)])
def test_the_answer_to_the_end_that_changes_the_producer_id_is_lost(point, nth, view, cluster, topic, spark, tmp_path):
    """The commit of decided transactions gives their ids a new producer id, and the driver fails before it, between two
    of them, or before it knows. The next run asks with the old pairs, and nothing is lost or doubled."""
    source, out = topic(2), topic(2)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    reading = {"subscribe": source, "startingOffsets": "earliest", "minPartitions": 1}
    rows = spark.readStream.format("eos-kafka").options(**options, **reading).load()
    writer = rows.select("value", "partition").writeStream.format("eos-kafka").options(**options, topic=out)
    writer = writer.option("checkpointLocation", checkpoint := str(tmp_path / "checkpoint"))
    fed: list[str] = []

    def feed() -> None:
        """One more micro-batch of two transactions."""
        fed.append(str(len(fed)))
        write(cluster.bootstrap_servers, source, [(p, f"{p}.{fed[-1]}") for p in range(2)], commit=True)

    def expected() -> list[str]:
        return sorted(f"{p}.{i}" for p in range(2) for i in fed)

    with judged(view, of_topics(view, out, source, checkpoint)):
        with armed(spark, f"{point}=fail@{nth}", tmp_path / "faults"):
            query = writer.trigger(processingTime="20 milliseconds").start()
            try:
                for _ in range(2):
                    feed()
                    wait_for(lambda: query.exception() or sorted(view.values(out)) == expected(), f"batch {fed[-1]}")
                settled = {"CompleteCommit", "Empty"}
                wait_for(lambda: set(view.transactions(query.id).values()) <= settled, "the markers")
                names = [name for name in view.transactions(query.id) if not name.endswith("-ledger")]
                before = {name: view.pair(name)[0] for name in names}
                assert len(names) == 4, "two slots of two tasks"
                use_up(view, names, left=1)
                feed()
                wait_for(query.exception, "the fault")
            finally:
                query.stop()
        assert "fault injected" in str(query.exception())
        restarted = writer.trigger(availableNow=True).start()
        try:
            assert restarted.awaitTermination(TIMEOUT)
        finally:
            restarted.stop()
    changed = [name for name in names if view.pair(name)[0] != before[name]]
    assert len(changed) == 2, "each transaction of the batch had the last epoch of its producer id"
    assert sorted(view.values(out)) == expected()
    assert view.open_transactions(query.id) == set()
    assert view.held(out) == {}
    assert sorted(view.values(out, committed=False)) == expected(), "nothing was written twice"
