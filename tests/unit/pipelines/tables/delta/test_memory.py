"""What a Delta table remembers of a query's micro-batches, and what follows from it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.pipelines.tables.delta.memory import note_of, remembered, transactions_of
from spark_eos.pipelines.tables.micro_batch import (
    BatchPresence,
    RangeBatch,
    Remembered,
    check_start,
    digest_of,
    presence_of,
)
from tests.support.judges.conditions import raises
from tests.support.tables.delta_files import QUERY, micro_batch

BATCH = micro_batch(4, (0, 10, 20), (1, 5, 6))
RANGES = st.lists(
    st.builds(
        lambda topic, p, start, size: OffsetRange(topic, p, start, start + size, topic),
        *(st.sampled_from(["a", "a-0", "b"]), st.integers(0, 2), st.integers(0, 2**62), st.integers(1, 9)),
    ),
    max_size=4,
    unique_by=lambda r: (r.topic, r.partition),
)


def test_a_commit_holds_the_batch_its_digest_the_version_and_its_ends() -> None:
    """Read back by what the table has under each name."""
    found = dict(transactions_of(BATCH, 17, "an id"))
    assert found == {
        QUERY: 4,
        f"{QUERY}#digest": BATCH.digest,
        f"{QUERY}#read": 17,
        f"{QUERY}#table": digest_of("an id"),
        f"{QUERY}#t-0": 20,
        f"{QUERY}#t-1": 6,
    }
    assert remembered(found.get, QUERY) == Remembered(4, BATCH.digest, 17, digest_of("an id"))
    assert remembered(found.get, "another") == Remembered(None, None)


@given(RANGES, RANGES, st.integers(0, 3), st.integers(0, 3))
def test_digests_are_equal_where_micro_batch_and_offsets_are(ranges, others, number, other) -> None:
    """They are positive numbers of 63 bits."""
    one, two = RangeBatch(QUERY, number, tuple(ranges)), RangeBatch(QUERY, other, tuple(others))
    assert (one.digest == two.digest) == ((number, sorted(ranges)) == (other, sorted(others)))
    assert 0 <= one.digest < 2**63


@given(RANGES, st.data())
def test_the_digest_does_not_depend_on_how_ranges_are_dealt_to_tasks(ranges, data) -> None:
    """A replay may have more tasks, and hear from them in another order."""
    parts = []
    for r in ranges:
        cut = data.draw(st.integers(r.start, r.end))
        parts += [part for part in (r.cut(r.start, cut), r.cut(cut, r.end)) if part.size]
    shuffled = data.draw(st.permutations(parts))
    assert RangeBatch(QUERY, 1, tuple(shuffled)).digest == RangeBatch(QUERY, 1, tuple(ranges)).digest


def test_another_topic_of_the_same_name_has_another_digest() -> None:
    """Its offsets are other rows."""
    again = RangeBatch(QUERY, 4, tuple(OffsetRange(r.topic, r.partition, r.start, r.end, "new") for r in BATCH.ranges))
    assert again.digest != BATCH.digest


@pytest.mark.parametrize(
    ("last", "digest", "expected"),
    [
        (3, None, BatchPresence.NEW),
        (3, BATCH.digest, BatchPresence.NEW),
        (4, BATCH.digest, BatchPresence.THERE),
        (4, 1, BatchPresence.UNCLEAR),
        (4, None, BatchPresence.UNCLEAR),
    ],
)
def test_whether_a_micro_batch_is_there(last, digest, expected) -> None:
    """By its number and its digest."""
    assert presence_of("/t", Remembered(last, digest, None), BATCH) is expected


@pytest.mark.parametrize(
    ("last", "condition"),
    [(5, "EOS_TABLE_CHECKPOINT_BEHIND"), (2, "EOS_OTHER_TABLE"), (None, "EOS_OTHER_TABLE")],
)
def test_numbers_have_no_gaps(last, condition) -> None:
    """A later micro-batch is an old checkpoint; a missing one is another table, or one that has lost a commit."""
    with raises(condition, "table /t"):
        presence_of("/t", Remembered(last, None, None), BATCH)


def test_a_new_query_begins_in_any_table() -> None:
    """Whatever other queries have written there."""
    assert presence_of("/t", Remembered(None, None, None), micro_batch(0)) is BatchPresence.NEW
    check_start("/t", None, finished=None, planned=None)


@pytest.mark.parametrize(
    ("last", "finished", "planned", "condition"),
    [
        (3, 3, 4, None),
        (4, 3, 4, None),
        (0, None, 0, None),
        (5, 3, 4, "EOS_TABLE_CHECKPOINT_BEHIND"),
        (0, None, None, "EOS_TABLE_CHECKPOINT_BEHIND"),
        (2, 3, 4, "EOS_OTHER_TABLE"),
        (None, 3, 4, "EOS_OTHER_TABLE"),
    ],
)
def test_checkpoint_and_table_belong_together(last, finished, planned, condition) -> None:
    """When a query starts: neither was put back."""
    if condition is None:
        check_start("/t", last, finished=finished, planned=planned)
        return
    with raises(condition):
        check_start("/t", last, finished=finished, planned=planned)


def test_the_note_is_for_people() -> None:
    """DESCRIBE HISTORY shows it."""
    note = json.loads(note_of(BATCH, 11))["spark-eos"]
    assert note == {
        "query": QUERY,
        "batch": 4,
        "digest": f"{BATCH.digest:x}",
        "ranges": {"t/0": [10, 20], "t/1": [5, 6]},
        "rows": 11,
    }
    assert str(BATCH) == "offsets t/0 10 to 20, t/1 5 to 6"
    assert str(micro_batch(0)) == "no new offsets"
