"""Rows that the sink cannot write: an error with a name and a remedy, and nothing of their micro-batch."""

from __future__ import annotations

import uuid

from tests.support.waiting import TIMEOUT

ROWS = "value string, topic string, partition int"


def test_a_missing_topic_by_column(files, sink, topic, refused, view):
    """Only the rows know it. What was written before that row is aborted."""
    out, name = topic(), f"missing-{uuid.uuid4()}"
    source = files(ROWS).add([("a", out, None)] * 20_000 + [("b", name, None)])
    refused(sink(), source.stream(), "EOS_TOPIC_MISSING", out, tasks=True, says=name)
    assert name not in view.admin.list_topics(timeout=TIMEOUT).topics


def test_a_row_that_cannot_be_written(files, sink, topic, refused):
    """The batch's other rows are aborted; without the row the replay is clean."""
    out = topic(2)
    good = [("a", out, 0)] * 5
    source = files(ROWS).add(good, [*good, ("b", out, 7)])
    query = sink()
    refused(query, source.stream(), "EOS_ROW_INVALID", out, tasks=True, says="which has 2")
    query.run(source.stream().where("value = 'a'"))
    assert refused.view.values(out) == ["a"] * 10
