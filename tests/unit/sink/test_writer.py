"""The sink's writer on the driver, as far as it goes without a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base.metrics_events import Events
from spark_eos.errors import ConnectionFailed, OptionError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.options.parse import SinkOptions
from spark_eos.options.writes import WriteOptions, write_options
from spark_eos.protocol.head import BatchWrite, Pair, Probe, Written
from spark_eos.protocol.task import TaskReport, Work
from spark_eos.sink import commit
from spark_eos.sink.batch_writer import EosKafkaBatchWriter
from spark_eos.sink.job import Message, SinkJob
from spark_eos.sink.preflight import Facts
from spark_eos.sink.schema import Columns
from spark_eos.sink.spark_rows import SparkRows
from spark_eos.sink.writer import EosKafkaStreamWriter
from tests.support.judges.conditions import raises

NOWHERE = SinkOptions(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}), topic="t")
MESSAGE = Message("q", "r", Facts(60_000, 8, "d"), TaskReport(Work.WRITE, 0, 1, 1), 0.1, 0.0)
ROWS = SparkRows(Columns(key=False, topic=False, partition=False, headers=False, timestamp=False))


def writer(events: Events | None = None) -> EosKafkaStreamWriter:
    return EosKafkaStreamWriter(NOWHERE, ROWS, events or Events())


@pytest.mark.parametrize("messages", [[MESSAGE, None], [None, MESSAGE], [None, None], []])
def test_a_task_that_has_not_reported_stops_the_commit(messages):
    """Its rows would be missing from the decision, and nobody would look for them again."""
    with raises("EOS_TASK_SILENT", f"{messages.count(None)} of its {len(messages)} tasks") as caught:
        writer().commit(messages, 7)
    assert caught.value.restart_helps


def test_what_was_decided_before_the_commit_failed_is_not_told_as_aborted(monkeypatch):
    """Whatever it failed by: rights may be taken away at any moment. Spark then asks to abort the micro-batch."""
    told = []

    class Told(Events):
        def tell(self, event: str, **values: Any) -> None:
            told.append((event, values["transactions"]))

    pairs = [Pair(f"eos-q-1-{n}-1", n, 0) for n in range(3)]
    decisions = iter([None, SimpleNamespace(pairs=frozenset(pairs[:2]))])
    ledger = SimpleNamespace(read=lambda: SimpleNamespace(decision=next(decisions)))
    session = SimpleNamespace(ports=SimpleNamespace(ledger=ledger), stop_background_work=lambda: None)
    monkeypatch.setattr(commit, "session_for", lambda *_: session)
    monkeypatch.setattr(commit, "abort", lambda *_: ())
    messages = [
        Message("q", "r", Facts(60_000, 8, "d"), TaskReport(Work.WRITE, n, 1, 1, written), 0.1, 0.0)
        for n, pair in enumerate(pairs)
        for written in [Written(n, pair, 1, 1, Probe("t", n, 0, 0))]
    ]
    for _ in range(2):
        writer(Told("there")).abort(messages, 7)
    assert told == [("aborted", 3), ("aborted", 1)]


@pytest.mark.parametrize(
    ("given", "entry"),
    [
        ({"offsets.group.id": "g"}, "EOS_OPTION_UNSUPPORTED"),
        ({"transaction.two.phase.commit": "true"}, "EOS_OPTION_MISSING"),
        ({"job_id": "x"}, "EOS_OPTION_UNKNOWN"),
        ({"ledger.topic": "t"}, "EOS_OPTION_CONFLICT.same_topic"),
    ],
)
def test_options_that_a_batch_write_cannot_have(given, entry):
    """It has no offsets, nobody could finish what never expires without a name, and a ledger needs its own topic."""
    with pytest.raises(OptionError) as caught:
        write_options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"} | given)
    assert caught.value.entry.startswith(entry)


@pytest.mark.parametrize("condition", ["EOS_KAFKA_UNREACHABLE", "EOS_UNAUTHENTICATED"])
def test_a_batch_write_that_brokers_end_says_how_it_is_run_again(condition, monkeypatch):
    """A login may be taken away after the decision: under a new id, every row would be written twice."""

    def fail(*_: object) -> None:
        raise ConnectionFailed(condition, "Nobody is let in.", hint="Check the password.")

    monkeypatch.setattr(SinkJob, "plan", fail)
    options = WriteOptions(NOWHERE, BatchWrite("load 7", None))
    with pytest.raises(ConnectionFailed) as caught:
        EosKafkaBatchWriter(options, ROWS)
    assert "Run it again with option 'job.id' = load 7: " in caught.value.hint
    assert ("Check the password. " in caught.value.hint) == (condition == "EOS_UNAUTHENTICATED")
