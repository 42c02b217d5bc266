"""One task: which one opens its run, what it asks ahead, and where it cannot go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.partitioners import PARTITIONERS
from spark_eos.options.parse import SinkOptions, sink_options
from spark_eos.protocol.abort import close
from spark_eos.protocol.head import NOBODY, Digest
from spark_eos.sink import attempt, task
from spark_eos.sink.attempt import RowWriter
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.preflight import Facts
from spark_eos.sink.rows import RowBatch
from spark_eos.sink.schema import Columns
from spark_eos.sink.session import Session
from spark_eos.sink.spark_rows import SparkRows
from tests.simulation.by_hand import Brokers, on_brokers, stopped
from tests.simulation.ledger import PREFIX, QUERY
from tests.support.judges.conditions import raises
from tests.support.waiting import TIMEOUT

CLIENT = BrokerClient(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))
COLUMNS = Columns(key=False, topic=False, partition=True, headers=False, timestamp=False)


def opening(
    brokers: Brokers, run: str, partition: int, happens: Callable[[], object] = lambda: None, **kafka: str
) -> str:
    """Which run has the query after the task of this partition has opened its own, if no other task has. ``happens``:
    between its first and its last look, if it waits for the lowest partition's."""

    def looks(seconds: float) -> Iterator[None]:
        yield
        if seconds:
            happens()
            yield

    ports = brokers.ports()
    job = SinkJob(
        SinkOptions(KafkaProperties({**CLIENT.properties, **kafka}), topic="output", prefix=PREFIX),
        Facts(60_000, 1, "d"),
        SparkRows(COLUMNS),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "retrying", looks)
        return (
            task.Task(job, Identity(QUERY, run, 0, partition, 0), Session(CLIENT, ports, ports.coordinator)).open().run
        )


def owner(brokers: Brokers) -> str:
    head = brokers.ports().ledger.read()
    assert head is not None
    return head.run


@pytest.mark.parametrize("first", [None, "first"])
@on_brokers
def test_a_task_that_outlives_its_run_does_not_replace_the_next_one(brokers: Brokers, first: str | None):
    """Whose lowest partition has failed before it opened anything, so that the others wait for it in vain."""
    if first is not None:
        opening(brokers, first, 0)
    error = stopped("EOS_SUPERSEDED", lambda: opening(brokers, "late", 1, lambda: opening(brokers, "next", 0)))
    assert error.parameters["by"] == owner(brokers) == "next"


@on_brokers
def test_a_task_opens_its_run_when_the_lowest_partition_does_not(brokers: Brokers):
    """As before it, or after a run that was closed while it waited."""
    opening(brokers, "first", 0)
    assert opening(brokers, "second", 1) == owner(brokers) == "second"
    assert opening(brokers, "third", 1, lambda: close(brokers.ports(), "second")) == owner(brokers) == "third"
    close(brokers.ports(), "third")
    assert owner(brokers) == NOBODY
    assert opening(brokers, "fourth", 1) == owner(brokers) == "fourth"


@on_brokers
def test_a_task_takes_over_what_the_lowest_partition_has_opened(brokers: Brokers):
    """And opens nothing itself."""
    opening(brokers, "one", 1, lambda: opening(brokers, "one", 0))
    heads = len(brokers.heads)
    assert opening(brokers, "one", 3) == "one"
    assert len(brokers.heads) == heads


@on_brokers
def test_another_partitioner_in_mid_life_is_told_once_a_run(brokers: Brokers, caplog):
    """Not for the one that the query began with, and not where the user has none of their own."""
    told = []
    chosen = [{"partitioner": name} for name in ("fnv1a", "fnv1a", "murmur2")]
    for run, kafka in enumerate(({}, *chosen, {})):
        caplog.clear()
        for partition in range(3):
            opening(brokers, f"run {run}", partition, **kafka)
        text = "began with the partitioner 'murmur2_random', and 'kafka.partitioner' is"
        told.append(sum(text in message for message in caplog.messages))
    assert told == [0, 1, 1, 1, 0]


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_task_asks_ahead_while_its_first_row_is_awaited(has_rows: bool):
    """One without rows, as most are behind a shuffle, does not ask: it is known by then that there are none."""
    asked, known = threading.Event(), threading.Event()

    def begin(*_: object) -> Any:
        assert has_rows or known.wait(TIMEOUT)
        return SimpleNamespace(writer=writer, write=lambda stats: "written")

    def rows() -> Iterator[pa.RecordBatch]:
        if has_rows:
            assert asked.wait(TIMEOUT)
            yield pa.RecordBatch.from_pydict({"value": pa.array(["a"])})

    class Known(threading.Event):
        """That there is a row, or none."""

        def set(self) -> None:
            super().set()
            known.set()

    writer = SimpleNamespace(ask_ahead=asked.set, producer=SimpleNamespace(close=lambda: None))
    one: Any = SimpleNamespace(job=SimpleNamespace(write=None), identity=None, begin=begin)
    one.open = one.assign = lambda *_: None
    one.without_rows = lambda _: "nothing"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "threading", SimpleNamespace(Event=Known))
        assert task.run_task(one, rows()) == ("written" if has_rows else "nothing")
    assert asked.is_set() == has_rows


@pytest.mark.parametrize(("waited_s", "asked"), [(1.9, 1), (2.1, 2)])
def test_an_answer_from_long_before_the_first_row_does_not_count(monkeypatch, waited_s: float, asked: int):
    """Partitions may have been added since; otherwise the topic is not asked for again."""
    now, topics = [100.0], []

    def described(client: object, names: set[str], **_: object) -> dict[str, Topic]:
        topics.extend(names)
        return {name: Topic("id", len(topics), internal=False) for name in names}

    monkeypatch.setattr(attempt, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(attempt, "describe_topics", described)
    producer: Any = SimpleNamespace(client=CLIENT, write=lambda topic, partitions, **_: None)
    writer = RowWriter(SinkOptions(CLIENT.properties, topic="t"), producer, Digest.ROWS)
    writer.ask_ahead()
    now[0] += waited_s
    row = pa.RecordBatch.from_pydict({"value": pa.array([b"a"]), "partition": pa.array([asked - 1], pa.int32())})
    assert writer.write(RowBatch(row, COLUMNS, "t")).rows == 1
    assert topics == ["t"] * asked and writer.partitions == {"t": asked}


def test_the_sink_writes_in_tasks_of_streaming_queries_only():
    """Elsewhere there is no query and no micro-batch to write for."""
    with raises("EOS_USE_UNSUPPORTED", "writeStream"):
        Identity.here()


@pytest.mark.parametrize("name", sorted(PARTITIONERS))
def test_every_partitioner_that_a_head_may_name_can_be_had(name):
    """A repair needs the one that its decision names, whatever the options say now."""
    options = sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.partitioner": name})
    assert options.partitioner == name
