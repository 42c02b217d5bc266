"""Where a query has written that has ended, and whether its last micro-batch is looked at."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_eos import restarts
from spark_eos.errors import ProtocolStop
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.options.parse import SinkOptions
from spark_eos.sink import ended
from spark_eos.sink.ended import check_end, remember

OPTIONS = SinkOptions(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}), topic="t")
MISSING = ProtocolStop("EOS_ROWS_MISSING", "Rows are missing.", hint="Write them.")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, bool]]:
    """Of which query's ports the last decision was looked at, and whether that was stopped."""
    done: list[tuple[object, bool]] = []
    monkeypatch.setattr(ended, "topic_partitions", lambda kafka, topics: dict.fromkeys(topics, 8))
    monkeypatch.setattr(ended, "session_for", lambda options, partitions, query: SimpleNamespace(ports=query))
    monkeypatch.setattr(ended, "look_at_last", lambda ports, *, stopped: done.append((ports, stopped)))
    return done


@pytest.mark.parametrize("stopped", [True, False])
def test_a_query_whose_options_are_known_is_looked_at(looks, stopped):
    """Of the direct way, whose options only this process has."""
    remember("run", OPTIONS)
    check_end(SimpleNamespace(id="query", runId="run"), stopped=stopped)
    assert looks == [("query", stopped)]


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
    assert looks == []


@pytest.mark.parametrize("stops", [True, False])
def test_whoever_runs_a_query_is_told_at_its_end(monkeypatch: pytest.MonkeyPatch, stops: bool):
    """As of an error of the query itself, after which no restart helps; also when it was stopped."""
    begun: list[object] = []

    class Query:
        recentProgress = ()

        def awaitTermination(self, timeout: object = None) -> bool:
            return not stops

        def stop(self) -> None:
            begun.append("stopped")

    def start() -> Query:
        begun.append("started")
        return Query()

    def missing(query: object, *, stopped: bool) -> None:
        assert stopped is stops
        raise MISSING

    monkeypatch.setattr(ended, "check_end", missing)
    with pytest.raises(ProtocolStop, match="EOS_ROWS_MISSING"):
        restarts.run(start, stop=lambda: stops)
    assert begun == ["started", "stopped"][: 1 + stops]
