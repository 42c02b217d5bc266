"""Copies: what a decision says of ranges, and what a replay of it reads again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import EosError, LedgerError
from spark_eos.pipelines.copy.ranges import (
    RANGES,
    CopiedFrom,
    copied_by,
    differences,
    joined,
    noted_of,
    ranges_of,
    ranges_to_read,
    read_from,
    reported,
    to_bytes,
)
from spark_eos.pipelines.registry.unknown_ids import MOST_NOTED
from spark_eos.protocol.extra import kinds_differ
from spark_eos.protocol.head import Decision, Digest, Extra, Head, Pair, Probe, Verdict, Written
from spark_eos.protocol.head_codec import decode, encode
from spark_eos.protocol.task import Assignment, TaskReport, Work, assign
from tests.support.judges.conditions import raises

TOPICS = (("a", "id-a"), ("b", "id-b"))
A0, A1, B0 = OffsetRange("a", 0, 5, 9), OffsetRange("a", 1, 0, 3), OffsetRange("b", 0, 7, 8)


def given(*ranges: OffsetRange, transform: str | None = "m:f", cluster: str = "c") -> CopiedFrom:
    return CopiedFrom(cluster, TOPICS, transform, ranges)


def written(partition: int, *ranges: OffsetRange, verdict: Verdict | None = None) -> Written:
    pair = Pair(f"id-{partition}", partition, 0)
    return Written(partition, pair, 2, 3, Probe("out", 0, partition), verdict, extra=read_from(ranges, {}))


def decision(*tasks: Written, rest: tuple[OffsetRange, ...] = ()) -> Decision:
    sums = 2 * len(tasks), 3 * len(tasks)
    return Decision(7, 0, 3, *sums, None, tasks, digest_by=Digest.CHUNKS, extra=RANGES.extra(to_bytes(given(*rest))))


def decided_of(reports: list[TaskReport]) -> Decision:
    return decision(*(report.written for report in reports if report.written is not None))


def head(last: Decision | None) -> Head:
    return Head("run", 4, (), 5, last, partitioner="murmur2")


def assigned(
    last: Decision | None, now: CopiedFrom, partition: int = 0, tasks: int = 1
) -> tuple[Assignment, tuple[OffsetRange, ...]]:
    """What a task has to do, and what it reads for that."""
    ranges = ranges_to_read(last, 7, partition, tasks, now)
    return assign(head(last), 7, partition, 0, digest_by=now.digest_by, repairs=bool(ranges)), ranges


def test_a_decision_names_the_ranges_of_each_transaction_and_those_without_rows():
    """The ledger gives back what it was given."""
    rest = (OffsetRange("b", 1, 0, 9),)
    last = decision(written(0, A0, B0), written(1, A1), rest=rest)
    found = decode(encode(head(last))).decision
    assert found == last
    assert [ranges_of(w) for w in found.written] == [(A0, B0), (A1,)]
    assert copied_by(found) == given(*rest)


def test_a_decision_says_which_schema_ids_were_unknown_in_which_range():
    """Of transactions that have such ranges, and of no other."""
    ids = (("value 17", "value 65536"), (), ("key 4711",))
    noted = dict(zip((A0, A1, B0), ids, strict=True))
    first = replace(written(0), extra=read_from((A0, A1, B0), noted))
    found = decode(encode(head(decision(first, written(1, OffsetRange("a", 2, 0, 5)))))).decision
    assert noted_of(found.written[0]) == noted
    assert noted_of(found.written[1]) == {OffsetRange("a", 2, 0, 5): ()}


@pytest.mark.parametrize(
    ("of_decision", "of_transaction"),
    [
        (b"{}", b"{}"),
        (b"[" * 100_000, b""),
        (b"\xff", b""),
        (b'{"cluster":"c","topics":[],"transform":null,"ranges":{},"more":1}', b""),
        (b'{"cluster":"c","topics":[],"transform":null,"ranges":{"a":[[0,1,2,3,[],4]]}}', b""),
        (None, b'{"a":[[0,1,2,3,[],4]]}'),
        (None, b'{"a":[[0,1]]}'),
        (None, b"[1]"),
    ],
)
def test_ranges_that_another_version_has_written_stop_the_query(of_decision: bytes | None, of_transaction: bytes):
    """Whoever took them for others would write rows that were not decided, or none."""
    last = decision(replace(written(0), extra=of_transaction, verdict=Verdict.LOST))
    if of_decision is not None:
        last = replace(last, extra=Extra(RANGES.name, of_decision))
    with pytest.raises(LedgerError, match=r"EOS_LEDGER_FORMAT.*ranges of offsets"):
        ranges_to_read(last, 7, 0, 1, given())


def test_more_runs_of_unknown_ids_than_a_decision_can_note_stop_the_query():
    """Of all tasks together, as each of their ranges has its own; the largest note fits into a record of the ledger."""
    ids = tuple(f"value {number - 5}..{number}" for number in range(2**31 - 5 * MOST_NOTED, 2**31, 10))

    def noting(partition: int, *texts: str) -> TaskReport:
        report = TaskReport(Work.WRITE, partition, 2, 3, written(partition), digest_by=Digest.CHUNKS)
        return reported(report, given(A0), (A0,), {A0: texts})

    reports = [noting(0, *ids), noting(1, *ids)]
    RANGES.body(None, reports)
    decided = decided_of(reports)
    assert [len(noted_of(w)[A0]) for w in decided.written] == [MOST_NOTED // 2] * 2
    assert len(encode(head(decided))) < 400_000
    with pytest.raises(EosError, match=f"form {MOST_NOTED + 1} intervals") as caught:
        RANGES.body(None, [*reports, noting(2, "value 1")])
    assert caught.value.entry == "EOS_REGISTRY_NOT_FOUND.many_ranges" and not caught.value.restart_helps


def test_a_decision_has_each_range_once():
    """That of a task that wrote with what it wrote, and those of the others together: so a replay is equal."""
    read = [OffsetRange("in", number, 0, 9) for number in range(3)]
    wrote = TaskReport(Work.WRITE, 0, 2, 3, written(0), digest_by=Digest.CHUNKS)
    nothing = (TaskReport(Work.WRITE, number, 0, 0, digest_by=Digest.CHUNKS) for number in (1, 2))
    reports = [reported(wrote, given(read[0]), (read[0],)), *map(reported, nothing, map(given, read[1:]))]
    decided = replace(decided_of(reports), extra=RANGES.extra(RANGES.body(None, reports)))
    assert copied_by(decided) == given(*read[1:])
    assert differences(decided, given(*read)) == []
    assert RANGES.described(reports) == "bytes=0 ranges=3"


def test_ranges_are_merged_where_one_begins_at_the_end_of_another():
    """However they are dealt to tasks; with the leader epochs of the whole range's start and end."""
    parts = [OffsetRange("a", 0, 7, 9, "", -1, 4, 4), A1, OffsetRange("a", 0, 5, 7, "", 2, -1, 4)]
    whole, other = joined(parts)
    assert (whole, other) == (A0, A1)
    assert (whole.first_epoch, whole.last_epoch, whole.most_epoch) == (2, 4, 4)
    assert joined([OffsetRange("a", 0, 7, 9), OffsetRange("a", 0, 5, 6)]) == (
        OffsetRange("a", 0, 5, 6),
        OffsetRange("a", 0, 7, 9),
    )


def test_a_new_micro_batch_is_written_from_the_ranges_that_spark_gives():
    """With a digest in which the places of rows count."""
    assignment, ranges = assigned(None, given(A0), 1, 3)
    assert (assignment.work, assignment.digest_by, ranges) == (Work.WRITE, Digest.CHUNKS, (A0,))
    assert assigned(None, given(A0, transform=None), 1, 3)[0].digest_by is Digest.BATCHES


def test_nothing_is_read_for_a_decision_that_has_lost_nothing():
    """However its ranges are dealt to tasks now."""
    last = decision(written(0, A0), written(1, A1))
    for partition in range(2):
        assignment, ranges = assigned(last, given(A1, A0), partition, 2)
        assert (assignment.work, assignment.name, ranges) == (Work.COUNT, None, ())


@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
def test_lost_transactions_are_written_again_from_their_own_ranges_by_any_number_of_tasks(tasks):
    """Each of them once, digested as it was."""
    lost = [written(0, A0, verdict=Verdict.LOST), written(2, A1, B0, verdict=Verdict.LOST)]
    last = decision(lost[0], written(1, OffsetRange("a", 2, 0, 5), verdict=Verdict.COMMITTED), lost[1])
    found: list[OffsetRange] = []
    for partition in range(tasks):
        assignment, ranges = assigned(last, given(), partition, tasks)
        assert (assignment.work is Work.REPAIR) == bool(ranges) == (assignment.name is not None)
        assert assignment.digest_by is last.digest_by is Digest.CHUNKS
        found += ranges
    assert sorted(found) == sorted((A0, A1, B0))


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (given(A0, A1, transform=None), "the transform: decided m:f, now none"),
        (given(A0, A1, cluster="d"), "the source's cluster: decided c, now d"),
        (given(A0), "ranges: decided a-1 0 to 3, now fewer"),
        (given(A0, A1, B0), "ranges: decided fewer, now b-0 7 to 8"),
        (replace(given(A0, A1), topics=(("a", "id-of-another"),)), "topics and their ids"),
    ],
)
def test_a_replay_of_something_else_is_not_what_was_decided(now, what):
    """The error says what differs, and nothing is written for it where the task can tell."""
    last = decision(written(0, A0), rest=(A1,))
    assert [what in unlike for unlike in differences(last, now)] == [True]
    assert kinds_differ(last, None) == ["the way of the rows: decided ranges of offsets, now rows through Spark"]


def test_a_task_of_another_way_writes_nothing_at_all():
    """Before it takes a name: what it would write was not decided."""
    last = decision(written(0, A0, verdict=Verdict.LOST))
    with raises("EOS_REPLAY_DIVERGED"):
        ranges_to_read(replace(last, extra=None), 7, 0, 1, given(A0))


def test_a_decision_has_the_epochs_of_its_ranges():
    """By which the same offsets of a log that was cut and has grown again are not the same."""
    here, part = replace(A0, first_epoch=2, last_epoch=4, most_epoch=4), replace(A1, most_epoch=4)
    last = decision(written(0, here, B0), written(1, part), rest=(replace(OffsetRange("b", 1, 0, 9), last_epoch=0),))
    found = decode(encode(head(last))).decision
    assert [[r.last_epoch for r in ranges_of(w)] for w in found.written] == [[4, -1], [-1]]
    assert [r.last_epoch for r in copied_by(found).ranges] == [0]
    same = given(here, B0, part, OffsetRange("b", 1, 0, 9))
    assert differences(found, same) == []


@pytest.mark.parametrize(
    ("before", "now", "cluster", "says"),
    [
        (0, 1, "c", "leader epoch 0, now 1"),
        (1, 0, "c", "leader epoch 1, now 0"),
        (0, 0, "c", None),
        (-1, 0, "c", None),
        (4, 6, "d", "cluster"),
    ],
    ids=["another one", "the first one", "the same", "not known", "of another cluster, and so of another log"],
)
def test_a_leader_epoch_that_differs_is_named(before: int, now: int, cluster: str, says: str | None):
    """The first one of a topic, 0, is one as any other."""
    last = decision(written(0, replace(A0, last_epoch=before)))
    unlike = differences(last, given(replace(A0, last_epoch=now), cluster=cluster))
    assert len(unlike) == (says is not None) and all(str(says) in text for text in unlike)


def test_a_source_that_has_changed_counts_transactions_and_rows():
    """Two of three transactions were lost, with four rows, of which the source gives three."""
    lost = [written(number, A0, verdict=Verdict.LOST) for number in (1, 2)]
    error = RANGES.not_repaired(decision(written(0, A1, verdict=Verdict.COMMITTED), *lost), 3)
    assert error.condition == "EOS_REPAIR_SOURCE_CHANGED"
    assert "lost 2 of its 3 transactions, with 4 rows" in error.message
    assert "now give 3 rows" in error.message
