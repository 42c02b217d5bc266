"""Topics that a query leaves, on purpose or not: a loss that is said once, and what becomes of them later."""

from __future__ import annotations

import pytest

from spark_eos.errors import DataLossError
from spark_eos.source import plan, watch
from spark_eos.source.reader import EosKafkaStreamReader
from tests.support.queries.source_calls import (
    fresh,
    run,
    topics,
    until_more,
    until_topic_is_gone,
    values,
)


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    """Topics are looked at every time, not every five seconds; and one broker soon tells what is there."""
    monkeypatch.setattr(watch, "_TOPICS_S", 0.0)
    monkeypatch.setattr(plan, "HIDDEN_WAITS_MS", (0, 100, 400))


def left(reader, admin, write, name: str, other: str, how: str) -> tuple[EosKafkaStreamReader, dict]:
    """Of a query that has read two partitions, or topics, and then lost one of them: the reader that goes on without
    it, and would stop for a loss; and where it is after one start of a query that may lose data."""
    both, one = {
        "deleted": ({"topics": f"{name},{other}"}, {"topics": f"{name},{other}"}),
        "by name": ({"topics": f"{name},{other}"}, {"topics": other}),
        "by pattern": (
            {"topics": None, "subscribePattern": f"^({name}|{other})$"},
            {"topics": None, "subscribePattern": f"^{other}$"},
        ),
    }[how]
    write(name, *"abc")
    _, at = run(reader(**both))
    if how == "deleted":
        admin.delete_topics([name])[name].result()
        until_topic_is_gone(admin, name)
    with pytest.raises(DataLossError, match="the topic was deleted" if how == "deleted" else "no longer includes it"):
        run(reader(**one), at)
    assert topics(at)[name] == {"0": 3}
    batches, end = run(reader(**one, failOnDataLoss=False), at)
    assert values(batches) == []
    return reader(**one), end


@pytest.mark.parametrize("how", ["deleted", "by pattern"])
def test_one_start_that_may_lose_data_is_enough(how, reader, topic, write, admin):
    """Also where nothing is to be read in it; from then on the query is as strict as before."""
    name, other = topic(), topic(2)
    source, at = left(reader, admin, write, name, other, how)
    assert topics(at) == {other: {"0": 0, "1": 0}}
    assert fresh(source).latestOffset(at, source.getDefaultReadLimit()) == at
    write(other, "new", partition=1)
    until_more(source, at)
    batches, end = run(fresh(source), at)
    assert values(batches) == ["new"]
    assert end["#left"] == {name: {"id": at["#left"][name]["id"], "offsets": {"0": 3}, "epochs": {"0": 0}}}


def test_a_topic_that_comes_back_goes_on_where_it_was_left(reader, topic, write, admin, caplog):
    """What came meanwhile is read, nothing twice; in no micro-batch that begins elsewhere than the log says."""
    name, other = topic(), topic()
    _, at = left(reader, admin, write, name, other, "by name")
    write(name, *"de")
    source = reader(f"{name},{other}")
    until_more(source, at)
    batches, end = run(source, at)
    assert values(batches) == ["d", "e"]
    assert batches[0] == []
    assert topics(end) == {name: {"0": 5}, other: {"0": 0}}
    assert "#left" not in end
    assert "goes on where it was left, at {0: 3}" in caplog.text
