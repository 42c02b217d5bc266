"""Where a query has written that has ended, and whether its last micro-batch is looked at."""

from __future__ import annotations

import weakref
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from spark_eos.datasource import restarts
from spark_eos.errors import ProtocolStop
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.options.parse import SinkOptions
from spark_eos.sink import ended
from spark_eos.sink.ended import check_end, remember
from spark_eos.spark.reasons import Reason

OPTIONS = SinkOptions(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}), topic="t")
MISSING = ProtocolStop("EOS_ROWS_MISSING", "Rows are missing.", hint="Write them.")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """``done``: of which query's ports the last decision was looked at, by which micro-batch, and whether that was
    stopped; ``error``: what such a look raises, if anything."""
    state = SimpleNamespace(done=[], error=None)

    def verify_last(ports: object, batch: int | None, *, stopped: bool) -> None:
        state.done.append((ports, batch, stopped))
        if state.error is not None:
            raise state.error

    monkeypatch.setattr(ended, "topic_partitions", lambda client, topics: dict.fromkeys(topics, 8))
    monkeypatch.setattr(ended, "session_for", lambda client, options, partitions, query: SimpleNamespace(ports=query))
    monkeypatch.setattr(ended, "verify_last", verify_last)
    return state


@pytest.mark.parametrize("stopped", [True, False])
def test_a_query_whose_options_are_known_is_looked_at(looks, stopped):
    """Of a copy, whose options only this process has."""
    query = SimpleNamespace(id="query", runId="run", recentProgress=())
    remember(query, OPTIONS)
    check_end(query, stopped=stopped)
    assert looks.done == [("query", None, stopped)]


def test_only_the_newest_start_of_a_query_is_remembered(looks):
    """A program may start a copy of what is there every minute, and the options have secrets."""
    first = replace(OPTIONS)
    is_there = weakref.ref(first)
    remember(SimpleNamespace(id="query of two runs", runId="run 1"), first)
    del first
    assert is_there()
    remember(SimpleNamespace(id="query of two runs", runId="run 2"), OPTIONS)
    assert not is_there()
    for run in ("run 1", "run 2"):
        check_end(SimpleNamespace(id="query of two runs", runId=run, recentProgress=()), stopped=False)
    assert len(looks.done) == 1


def test_options_that_spark_knows_are_asked_for_in_any_thread(looks, session_of_another_thread):
    """By the session that the process has."""
    session, query = MagicMock(), MagicMock(id="query", recentProgress=())
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    session._jvm.scala.jdk.javaapi.CollectionConverters.asJava.return_value = given
    query._jsq.streamingQuery().lastExecution().logical().table().name.return_value = "eos-kafka"
    session_of_another_thread(session)
    check_end(query, stopped=False)
    assert looks.done == [("query", None, False)]


def test_the_last_micro_batch_that_was_finished_is_one_that_the_ledger_has_to_know(looks):
    """A trigger that has nothing to do names the next one, which nobody has run."""
    finished = [{"batchId": batch, "durationMs": {"addBatch": 5, "triggerExecution": 9}} for batch in (7, 8)]
    idle = {"batchId": 9, "durationMs": {"triggerExecution": 1}}
    query = SimpleNamespace(id="query", runId="run", recentProgress=[*finished, idle])
    remember(query, OPTIONS)
    check_end(query, stopped=False)
    assert looks.done == [("query", 8, False)]


@pytest.mark.parametrize(
    "query",
    [
        SimpleNamespace(),
        SimpleNamespace(id="query", runId="of Spark Connect"),
        SimpleNamespace(id="query", runId="never planned", _jsq=SimpleNamespace(streamingQuery=lambda: None)),
    ],
)
def test_a_query_that_writes_elsewhere_or_does_not_tell_is_left_alone(looks, query):
    """Whatever behaves like a query may be run."""
    check_end(query, stopped=False)
    assert looks.done == []


@pytest.mark.parametrize("stops", [True, False])
def test_whoever_runs_a_query_is_told_at_its_end(looks, stops: bool):
    """As of an error of the query itself, after which no restart helps; also when it was stopped."""
    query = MagicMock(id="query", recentProgress=(), **{"awaitTermination.return_value": not stops})
    start, looks.error = MagicMock(return_value=query), MISSING
    remember(query, OPTIONS)
    with pytest.raises(ProtocolStop, match="EOS_ROWS_MISSING"):
        restarts.run(start, stop=lambda: stops)
    assert looks.done == [("query", None, stops)]
    assert (start.call_count, query.stop.call_count) == (1, stops)


@pytest.mark.parametrize("why", [Reason("EOS_X", "", "", False), None], ids=["needs somebody", "unknown"])
def test_an_error_after_which_no_restart_helps_is_raised_at_once(why: Reason | None):
    """Of two runs of a query, the one that was replaced must not come back; what is not known is left to a person."""

    def start() -> Any:
        raise MISSING

    with pytest.raises(ProtocolStop, match="EOS_ROWS_MISSING"):
        restarts.run(start, explain=lambda _: why, on_restart=lambda restart: pytest.fail(str(restart)))
