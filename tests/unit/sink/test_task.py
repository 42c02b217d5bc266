"""One attempt of a task, where it cannot go on."""

from __future__ import annotations

from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import Unclear, UnsupportedError
from spark_eos.kafka.partitioners import PARTITIONERS
from spark_eos.options.parse import sink_options
from spark_eos.protocol.head import Pair
from spark_eos.sink import attempt
from spark_eos.sink.attempt import Attempt
from spark_eos.sink.job import Identity


def test_the_sink_writes_in_tasks_of_streaming_queries_only():
    """Elsewhere there is no query and no micro-batch to write for."""
    with pytest.raises(UnsupportedError) as caught:
        Identity.here()
    assert caught.value.condition == "EOS_USE_UNSUPPORTED"
    assert "writeStream" in caught.value.hint


def test_a_transaction_that_no_leader_knows_is_not_handed_over(monkeypatch):
    """Without the place of its first record, nobody could tell later what became of it."""
    monkeypatch.setattr(attempt, "retrying", lambda seconds: repeat(None, 3))
    asked = []

    def first_record(pair: Pair, places: Any) -> None:
        asked.append((pair, list(places)))

    session = SimpleNamespace(coordinator=SimpleNamespace(first_record=first_record))
    own: Any = SimpleNamespace(job=None, identity=None, session=session)
    nothing: Any = None
    pair, places = Pair("name-of-a-task", 1, 0), [("out", 0)]
    with pytest.raises(Unclear, match="name-of-a-task") as caught:
        Attempt(own, nothing, SimpleNamespace(producer=None))._first_record(pair, places)
    assert caught.value.condition == "EOS_TRANSACTION_NOT_FOUND"
    assert asked == [(pair, places)] * 3


@pytest.mark.parametrize("name", sorted(PARTITIONERS))
def test_every_partitioner_that_a_head_may_name_can_be_had(name):
    """A repair needs the one that its decision names, whatever the options say now."""
    options = sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.partitioner": name})
    assert options.partitioner == name
