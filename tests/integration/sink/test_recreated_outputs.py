"""The output topic is deleted and created anew under a micro-batch: no row is missing in silence.

Coordinators commit by the topic's name, whichever topic that is by now.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.errors import PySparkException

import spark_eos
from spark_eos.errors import EosError
from spark_eos.tools.devcluster import DevCluster
from tests.support.queries.sink_queries import Files, Sink
from tests.support.queries.source_calls import anew
from tests.support.runs.case_cover import one_for_every_day
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for

#: One task's, in two Arrow batches, the first of which is in the log when the second one comes.
ROWS = [f"{number:03d}" + "." * 200_000 for number in range(20)]
A_BATCH = len(ROWS) // 2
MISSING = "EOS_ROWS_MISSING"

#: Nothing is decided: `spark_eos.run` starts the query again, or Spark the task, and all rows are written.
UNDECIDED = ["prepare.wrote", "prepare.prepared"]


@pytest.fixture
def recreated(admin, cluster: DevCluster, spark, view, tmp_path) -> Callable[..., Any]:
    """``with recreated(topic, point):`` who comes to the point next is held until the topic is another one. ``more``:
    other faults."""

    @contextmanager
    def during(topic: str, point: str, more: str = "") -> Iterator[None]:
        failed: list[BaseException] = []

        def operator(fault: Any) -> None:
            try:
                wait_for(fault.marker.exists, point)
                wait_for(lambda: view.held(topic), "rows in the log")
                anew(admin, cluster, topic)
            except BaseException as error:
                failed.append(error)
                raise
            finally:
                fault.marker.unlink(missing_ok=True)

        with armed(spark, f"{point}=hold{more}", tmp_path / "faults") as fault:
            thread = threading.Thread(target=operator, args=[fault])
            thread.start()
            yield
            thread.join()
        assert failed == []

    return during


@pytest.fixture
def small_batches(spark) -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, A_BATCH)
    yield
    spark.conf.set(name, before)


@pytest.mark.parametrize("point", one_for_every_day("what was not decided is written again", UNDECIDED))
def test_what_was_not_decided_is_written_again(point, recreated, sink, files, topic, view, small_batches):
    """Halfway between a task's rows, too, the second half of which is in the new topic."""
    out = topic()
    stream, query = files().add(ROWS), sink(topic=out)
    with recreated(out, point):
        assert _stops(query, stream) == []
    assert sorted(view.values(out)) == sorted(ROWS)


def _stops(query: Sink, stream: Files) -> list[str]:
    """How the query stops, if it does not drain its input."""
    try:
        spark_eos.run(lambda: query.start(stream.stream()))
    except (EosError, PySparkException) as error:
        named = spark_eos.reason(error)
        assert named is not None, error
        return [named.condition]
    return []


def test_a_stream_tells_of_what_was_decided(recreated, sink, files, topic, view):
    """The run, and every start after that."""
    out = topic()
    stream, query = files().add(ROWS), sink(topic=out)
    with recreated(out, "commit.decided"):
        assert _stops(query, stream) == [MISSING]
    assert _stops(query, stream.add(ROWS)) == [MISSING]
    assert view.values(out) == []
