"""A Spark without admission control: it calls latestOffset without a start and a limit. Called as Spark 4.1 does."""

from __future__ import annotations

import json

from tests.support.queries.source_calls import fresh, rows, topics, until_stable, values


def run_once(reader, end: dict | None) -> tuple[list[dict], dict]:
    """One run with a single micro-batch, after ``end``: its rows, and where it ended."""
    if end is not None:
        assert reader.partitions(end, end) == []  # how Spark says where the last run has ended
    later = json.loads(json.dumps(reader.latestOffset()))
    start = reader.initialOffset() if end is None else end
    return ([] if later == end else rows(reader, start, later)), later


def test_each_run_is_one_micro_batch(reader, topic, write):
    """From the earliest offset: the first run has rows already, a restart goes on, and idle runs have none."""
    name = topic()
    write(name, *"abc")
    first = reader(name)
    read, end = run_once(first, None)
    assert (values([read]), topics(end)) == (list("abc"), {name: {"0": 3}})
    assert run_once(fresh(first), end) == ([], end)
    write(name, "d")
    until_stable(reader, name, 4)
    assert values([run_once(fresh(first), end)[0]]) == ["d"]


def test_micro_batches_of_one_run_are_limited(reader, topic, write):
    """The limits of the user's hold, one micro-batch after the other."""
    name = topic()
    write(name, *"abcde")
    source = reader(name, maxOffsetsPerTrigger=2)
    start, batches = source.initialOffset(), []
    for _ in range(3):
        end = source.latestOffset()
        assert source.latestOffset() == end  # nothing of it was planned yet
        batches.append(rows(source, start, end))
        start = end
    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert values(batches) == list("abcde")
    assert source.latestOffset() == start


def test_a_start_that_moves_is_recorded_first(reader, topic, write):
    """Micro-batch 0 records where the end was, and reads nothing; a replay of it ends there again."""
    name = topic()
    write(name, "before")
    first = reader(name, startingOffsets="latest")
    read, end = run_once(first, None)
    assert (read, topics(end)) == ([], {name: {"0": 1}})
    write(name, "after")
    until_stable(reader, name, 2)
    replay = fresh(first)
    assert replay.partitions(end, end) == []
    assert rows(replay, replay.initialOffset(), end) == []
    assert values([run_once(replay, end)[0]]) == ["after"]
