"""The end of a transactional id's epochs: the coordinator gives it a new producer id, in the middle of a query.

Each use of an id takes two epochs, one to initialise and one to end. At one batch a second that is every nine hours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from kafka.protocol.producer.transaction import InitProducerIdRequest
from kafka_view import KafkaView, open_view, wait_for, write

from spark_eos.kafka.producer import TransactionalProducer
from spark_eos.kafka.wire import Wire
from spark_eos.options import KafkaProperties

LAST_EPOCH = 32_766  # the coordinator hands out no higher one
TIMEOUT_MS = 60_000

pytestmark = pytest.mark.chaos


@pytest.fixture
def view(cluster):
    with open_view(cluster.bootstrap_servers) as view:
        yield view


def use_up(view: KafkaView, names: Iterable[str], left: int) -> None:
    """Initialise each id, which must exist and be idle, until no more than so many epochs are left."""
    manager = view.kafka_python._manager
    (broker,) = manager.cluster.brokers()

    async def one(name: str) -> None:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
            min_version=4,
            max_version=4,
        )
        while True:
            answer = await manager.send(request, node_id=broker.node_id)
            assert answer.error_code in (0, 51), answer
            if answer.error_code == 0 and answer.producer_epoch >= LAST_EPOCH - left:
                return

    async def all_of_them() -> None:
        await asyncio.gather(*(one(name) for name in names))

    manager.run(all_of_them)


def test_transactions_are_ended_across_the_change_of_the_producer_id(view, cluster, topic):
    """A retry with the old pair is told the same as the first answer, though the id has another producer id by then."""
    out, name = topic(), "epochs-run-out"
    kafka = KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})
    wire = Wire(kafka)

    def transaction(value: str, commit: bool) -> int:
        producer = TransactionalProducer(kafka, name, TIMEOUT_MS)
        producer.warm_up(out)
        producer.init()
        producer.begin()
        producer.produce(out, value, partition=0)
        producer.flush()
        pair = producer.identity()
        producer.close()
        for _ in range(3):

            def answered() -> tuple[int] | None:
                code = wire.end([(name, pair.producer_id, pair.epoch)], commit)[name]
                return None if code in (None, 51) else (code,)

            assert wait_for(answered, f"the end of {value}") == (0,)
        return pair.producer_id

    first = transaction("before", True)
    use_up(view, [name], left=8)
    ids = [transaction(str(i), commit=i % 3 > 0) for i in range(12)]
    assert ids[0] == first
    assert ids[-1] != first
    wait_for(lambda: not view.held(out), "the markers")
    assert view.values(out) == ["before", *(str(i) for i in range(12) if i % 3)]


def test_a_query_goes_on_when_its_ids_run_out_of_epochs(view, cluster, topic, spark, tmp_path):
    """Those of its tasks, and the one of its ledger."""
    source, out, ledger = topic(), topic(), topic(1, cleanup_policy="compact")
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    rows = spark.readStream.format("eos-kafka").options(**options, subscribe=source, startingOffsets="earliest").load()
    sink = {"topic": out, "ledger.topic": ledger, "checkpointLocation": str(tmp_path / "checkpoint")}
    writer = rows.select("value").writeStream.format("eos-kafka").options(**options, **sink)
    query = writer.trigger(processingTime="20 milliseconds").start()
    expected: list[str] = []

    def feed() -> None:
        """One more micro-batch."""
        expected.append(str(len(expected)))
        write(cluster.bootstrap_servers, source, [(0, expected[-1])])
        wait_for(lambda: query.exception() or view.values(out) == expected, f"row {expected[-1]}", 60)
        assert query.exception() is None

    try:
        for _ in range(3):
            feed()
        wait_for(lambda: set(view.transactions(query.id).values()) <= {"CompleteCommit", "Empty"}, "the markers")
        names = view.transactions(query.id)
        assert len(names) == 3, "two slots and the ledger"
        before = {name: view.pair(name)[0] for name in names}
        use_up(view, names, left=5)
        for _ in range(16):
            feed()
        after = {name: view.pair(name)[0] for name in names}
    finally:
        query.stop()
    assert all(after[name] != before[name] for name in names)
    assert view.values(out) == expected
    assert view.held(out) == {}
