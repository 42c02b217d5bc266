"""Which offsets a start or an end stands for, by answers that are put in place of the cluster's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.options.parse import batch_options, stream_options
from spark_eos.source import batch
from spark_eos.source.batch import EosKafkaBatchReader
from spark_eos.source.bounds import resolve_end, resolve_start
from tests.support.judges.conditions import raises

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "kafka.group.id": "g"}
#: Topic t, whose partition 0 has lost its first three records, and has an open transaction at its end.
WATCH: Any = SimpleNamespace(
    client=None,
    expect_all=lambda: None,
    topics=lambda: SimpleNamespace(partitions={"t": [0, 1]}, ids={"t": "id"}),
    begins=lambda *_: {"t": {0: 3, 1: 0}},
    ends=lambda: {"t": {0: 8, 1: 5}},
    high_watermarks=lambda _: {"t": {0: 9, 1: 5}},
    epochs_at=lambda *_: {},
    at_times=lambda times: {topic: dict.fromkeys(partitions, 4) for topic, partitions in times.items()},
)


def start(given: dict[str, str]) -> dict[str, dict[int, int]]:
    return resolve_start(stream_options(OPTIONS | {"startingOffsets": "group"} | given), WATCH)


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], list[tuple[int, int, int]]]:
    """``ranges(options)``: partitions of `WATCH` that a batch reads, with start and end."""
    monkeypatch.setattr(batch, "TopicWatch", lambda *_, **__: WATCH)

    def planned(given: dict[str, str]) -> list[tuple[int, int, int]]:
        tasks = EosKafkaBatchReader(batch_options(OPTIONS | given)).partitions()
        return [(r.partition, r.start, r.end) for task in tasks for r in task.ranges]

    return planned


@pytest.mark.parametrize(
    ("given", "committed", "members", "condition", "says"),
    [
        ({}, {}, [], "EOS_GROUP_UNSUITABLE", "has no committed offsets for t-0, t-1"),
        ({}, {0: 5}, [], "EOS_GROUP_UNSUITABLE", "has no committed offsets for t-1"),
        ({}, {0: 5, 1: 0}, ["somebody"], "EOS_GROUP_ACTIVE", "1 active member"),
        ({}, {0: 1, 1: 0}, [], "EOS_SOURCE_DATA_LOSS", "Expected offset 1 of t-0, but its log now starts at 3"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":7}}'}, {}, [], "EOS_OPTION_INVALID", "without t-1"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":7,"1":7,"2":7}}'}, {}, [], "EOS_OPTION_INVALID", "set for t-2"),
    ],
    ids=["no offsets", "one offset", "at work", "offsets are gone", "a time less", "a time more"],
)
def test_starts_that_are_refused(group, given, committed, members, condition, says):
    """A group's that would read rows twice, or leave some out, and times of other partitions than there are."""
    group.committed, group.members = {"t": committed}, members
    with raises(condition, says):
        start(given)


def test_offsets_of_a_group_that_are_gone_begin_with_the_log(group):
    """Where data loss is not to fail."""
    group.committed = {"t": {0: 1, 1: 2}}
    assert start({"failOnDataLoss": "false"}) == {"t": {0: 3, 1: 2}}


def test_an_end_within_an_open_transaction():
    """Its rows may yet be aborted: the batch does not wait for it, and does not leave it out silently."""
    assert resolve_end("endingOffsets", {"t": {0: 8, 1: -1}}, WATCH) == {"t": {0: 8, 1: 5}}
    with raises("EOS_OPTION_INVALID", "9 for t-0, whose last stable offset is 8"):
        resolve_end("endingOffsets", {"t": {0: 9, 1: -1}}, WATCH)


@pytest.mark.parametrize(("loss_fails", "named"), [("true", "3 for t-0"), ("false", "2 for t-1")])  # t-0 begins at 3
def test_an_end_before_the_start(ranges, loss_fails, named):
    """By name, before any task."""
    given = {"startingTimestamp": "5", "endingOffsets": '{"t":{"0":3,"1":2}}', "failOnDataLoss": loss_fails}
    with raises("EOS_OPTION_INVALID", f"offset {named}, before the start, which is 4"):
        ranges(given)


def test_an_end_before_the_log_begins_where_data_loss_is_not_to_fail(ranges):
    """Nothing of that partition is left, which fails neither the others, nor the user's order of start and end."""
    given = {"startingOffsets": '{"t":{"0":0,"1":1}}', "endingOffsets": '{"t":{"0":2,"1":5}}'}
    assert ranges(given | {"failOnDataLoss": "false"}) == [(1, 1, 5)]
