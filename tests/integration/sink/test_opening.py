"""Which task of a run opens it, and which one may not any more."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql.types import StringType, StructType

from spark_eos.errors import Superseded
from spark_eos.options.parse import sink_options
from spark_eos.protocol.closing import close
from spark_eos.protocol.head import NOBODY
from spark_eos.sink import task
from spark_eos.sink.job import Identity, Job
from spark_eos.sink.preflight import preflight
from spark_eos.sink.schema import check_columns
from spark_eos.sink.session import Session, session


class Query:
    """A query of which tasks open runs."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        options = sink_options({"kafka.bootstrap.servers": bootstrap_servers, "topic": topic})
        self._job = Job(options, preflight(options), check_columns(StructType().add("value", StringType()), topic))
        self._id = str(uuid.uuid4())
        self.session: Session = session(options, self._job.facts.ledger_partitions, self._id)

    def open(self, run: str, partition: int) -> str:
        """The run that has the query after that."""
        own = Identity(self._id, run, batch=0, partition=partition, attempt=0)
        return task.opened(self._job, self.session, own).run

    @property
    def run(self) -> str:
        head = self.session.ports.ledger.read()
        return head.run


@pytest.fixture
def query(cluster, topic) -> Query:
    return Query(cluster.bootstrap_servers, topic(1))


@pytest.fixture
def between_looks(monkeypatch) -> Callable[[Callable[[], object]], None]:
    """Lets something happen between the first and the last look of a task that waits for the lowest partition's."""

    def happens(what: Callable[[], object]) -> None:
        def looks(seconds: float) -> Iterator[None]:
            yield
            if seconds:
                what()
                yield

        monkeypatch.setattr(task, "retrying", looks)

    return happens


@pytest.mark.parametrize("first", [None, "first"])
def test_a_task_that_outlives_its_run_does_not_replace_the_next_one(query, between_looks, first):
    """Whose lowest partition has failed before it opened anything, so that the others wait for it in vain."""
    if first is not None:
        query.open(first, partition=0)
    between_looks(lambda: query.open("next", partition=0))
    with pytest.raises(Superseded) as caught:
        query.open("late", partition=1)
    assert (caught.value.condition, caught.value.parameters["by"]) == ("EOS_SUPERSEDED", "next")
    assert query.run == "next"


def test_a_task_opens_its_run_when_the_lowest_partition_does_not(query, between_looks):
    """As before it, or after a run that was closed while it waited."""
    query.open("first", partition=0)
    between_looks(lambda: None)
    assert query.open("second", partition=1) == query.run == "second"
    between_looks(lambda: close(query.session.ports, "second"))
    assert query.open("third", partition=1) == query.run == "third"
    close(query.session.ports, "third")
    assert query.run == NOBODY
    between_looks(lambda: None)
    assert query.open("fourth", partition=1) == query.run == "fourth"


def test_a_task_takes_over_what_the_lowest_partition_has_opened(query, between_looks):
    """And opens nothing itself."""
    between_looks(lambda: query.open("one", partition=0))
    assert query.open("one", partition=3) == "one"
