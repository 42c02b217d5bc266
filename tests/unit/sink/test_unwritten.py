"""A write within foreachBatch that fails is noted before its error is raised, or remembered where it cannot be."""

from __future__ import annotations

import logging
import traceback
import uuid

import pytest

from spark_eos.datasource.foreach_batch import batch_writer
from spark_eos.errors import ConnectionFailed, EosError, ProtocolStop
from spark_eos.options.writes import WriteOptions
from spark_eos.protocol.head import ForeachBatchWrite, Write
from spark_eos.sink import unwritten
from spark_eos.spark.reasons import reason
from tests.support.spark.frames import Frame


class Noted:
    """What was noted: the write's sink and micro-batch, and where. ``away``: the ledger cannot be reached."""

    def __init__(self) -> None:
        self.writes: list[tuple[Write | None, int, str]] = []
        self.away = False

    def note(self, options: WriteOptions) -> None:
        if self.away:
            raise ConnectionFailed("EOS_KAFKA_UNREACHABLE", "No answer.", hint="Wait.", reason="Timed out")
        self.writes.append((options.write, options.batch, options.sink.ledger_topic))


@pytest.fixture
def noted(monkeypatch) -> Noted:
    made = Noted()
    monkeypatch.setattr(unwritten, "_note", made.note)
    return made


@pytest.fixture
def query() -> str:
    return f"query {uuid.uuid4()}"


def save(query: str, batch: int, fails: BaseException | None, sink: str | None = "s", **options: object) -> None:
    writer = batch_writer(Frame(fails=fails), batch, query=query, sink=sink).option("kafka.bootstrap.servers", "h:1")
    writer.options(**options).format("eos-kafka").save(mode="append")


def fails(query: str, batch: int, **options: object) -> None:
    """The write, with an error that is what its caller sees."""
    with pytest.raises(ZeroDivisionError):
        save(query, batch, ZeroDivisionError(), **options)


def test_what_fails_is_noted_under_its_sink(noted, query):
    """Whichever option names it, and whatever else is wrong with them."""
    fails(query, 3, **{"Ledger.Topic": "l", "no.such.option": "x", "topic": "t", "transaction.timeout.ms": 0})
    fails(query, 4, sink=None, topic="t")
    fails(query, 5, sink=" s", **{"topic": "l", "ledger.topic": "l"})
    assert noted.writes == [
        (ForeachBatchWrite(query, "s"), 3, "l"),
        (ForeachBatchWrite(query, "t"), 4, "__spark_eos_ledger"),
        (ForeachBatchWrite(query, " s"), 5, "l"),
    ]


def test_what_is_written_is_not_noted(noted, query):
    """Nor is a look at the ledger needed for it."""
    save(query, 3, None)
    assert noted.writes == []


def test_what_could_not_be_noted_stops_the_next_write_of_the_process(noted, query, caplog):
    """That notes it, for those after the next start; other sinks and queries go on, and so does a repetition."""
    noted.away = True
    fails(query, 3)
    assert "EOS_KAFKA_UNREACHABLE" in caplog.text
    save(query, 4, None, sink="other")
    save(f"{query} 2", 4, None)
    for away in (True, False):
        noted.away = away
        with pytest.raises(ProtocolStop, match="EOS_WRITE_LEFT_BEHIND") as caught:
            save(query, 4, None)
        assert "micro-batch 3 failed" in caught.value.message
    assert noted.writes == [(ForeachBatchWrite(query, "s"), 3, "__spark_eos_ledger")]
    save(query, 4, None)  # which the ledger stops by now

    noted.away = True
    fails(query, 5)
    save(query, 5, None)
    save(query, 6, None)


def test_a_sink_that_nobody_has_named(noted, query):
    """Without option 'topic' there is no name to note it under; the process remembers it."""
    fails(query, 3, sink=None)
    with pytest.raises(ProtocolStop, match="EOS_WRITE_LEFT_BEHIND"):
        save(query, 4, None, sink=None)
    assert noted.writes == []


def test_an_error_of_spark_eos_comes_without_the_stacks_of_spark(noted, query, caplog):
    """What the JVM says of it is long; Py4J does not print it once more, and the query ends with its text."""
    text = (
        "spark_eos.errors.TopicError: [EOS_TOPIC_MISSING] h:1 has no topic t. Hint: Create it. SQLSTATE: 38000\n"
        + 500 * "\tat org.apache.spark\n"
    )
    with pytest.raises(EosError) as caught:
        save(query, 3, RuntimeError(text))
    assert str(caught.value) == "[EOS_TOPIC_MISSING] h:1 has no topic t. Hint: Create it."
    assert caught.value.__suppress_context__
    assert len("".join(traceback.format_exception(caught.value)).splitlines()) < 12
    assert reason(caught.value).condition == "EOS_TOPIC_MISSING"
    for error, logged in ((caught.value, False), (ZeroDivisionError(), True)):
        caplog.clear()
        logging.getLogger("py4j.clientserver").error("in a callback", exc_info=error)
        assert ("in a callback" in caplog.text) == logged


def test_what_stops_a_write_anyway_is_raised_as_it_is(noted, query):
    """An interrupt, and an error of spark-eos from this process; both are noted."""
    known = ProtocolStop("EOS_WRITE_LEFT_BEHIND", "Micro-batch 3.", hint="Look.", batch=3)
    for error in (KeyboardInterrupt(), known):
        with pytest.raises(type(error)) as caught:
            save(query, 3, error)
        assert caught.value is error
    assert len(noted.writes) == 2
