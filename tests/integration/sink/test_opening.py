"""Which task of a run opens it, and which one may not any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spark_eos.errors import Superseded
from spark_eos.protocol.abort import close
from spark_eos.protocol.head import NOBODY
from spark_eos.sink import task
from tests.support.models.open_query import Opening


@pytest.fixture
def query(cluster, topic) -> Opening:
    return Opening({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": topic(1)})


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
