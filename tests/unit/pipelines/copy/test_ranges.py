"""Copies: what a decision says of ranges, and what a replay of it reads again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import Diverged, LedgerError
from spark_eos.protocol.head import CopiedFrom, Decision, Digest, Head, Pair, Probe, Verdict, Written, merged
from spark_eos.protocol.head_codec import decode, encode
from spark_eos.protocol.replay import assign_ranges
from spark_eos.protocol.replay import differences_of_ranges as differences
from spark_eos.protocol.task import Work

TOPICS = (("a", "id-a"), ("b", "id-b"))
A0, A1, B0 = OffsetRange("a", 0, 5, 9), OffsetRange("a", 1, 0, 3), OffsetRange("b", 0, 7, 8)


def given(*ranges: OffsetRange, transform: str | None = "m:f", cluster: str = "c") -> CopiedFrom:
    return CopiedFrom(cluster, TOPICS, transform, ranges)


def written(partition: int, *ranges: OffsetRange, verdict: Verdict | None = None) -> Written:
    pair = Pair(f"id-{partition}", partition, 0)
    return Written(partition, pair, 2, 3, Probe("out", 0, partition), verdict, ranges=ranges)


def decision(*tasks: Written, rest: tuple[OffsetRange, ...] = ()) -> Decision:
    return Decision(
        7, 0, 3, 2 * len(tasks), 3 * len(tasks), None, tasks, digest_by=Digest.CHUNKS, copied_from=given(*rest)
    )


def head(last: Decision | None) -> Head:
    return Head("run", 4, (), 5, last, partitioner="murmur2")


def test_a_decision_names_the_ranges_of_each_transaction_and_those_without_rows():
    """The ledger gives back what it was given."""
    last = decision(written(0, A0, B0), written(1, A1), rest=(OffsetRange("b", 1, 0, 9),))
    assert decode(encode(head(last))).decision == last


def test_a_decision_says_which_schema_ids_were_unknown_in_which_range():
    """Of transactions that have such ranges, and of no other."""
    ids = (("value 17", "value 65536"), (), ("key 4711",))
    last = decision(replace(written(0, A0, A1, B0), unknown=ids), written(1, OffsetRange("a", 2, 0, 5)))
    found = decode(encode(head(last))).decision
    assert found == last
    assert [w.unknown for w in found.written] == [ids, ()]
    assert found.written[0].unknown_by_range == dict(zip((A0, A1, B0), ids, strict=True))
    assert found.written[1].unknown_by_range == {OffsetRange("a", 2, 0, 5): ()}
    later = json.loads(encode(head(last)))
    later["decision"]["written"][1][9][0] += [[], "more"]
    with pytest.raises(LedgerError, match="EOS_LEDGER_DAMAGED"):
        decode(json.dumps(later).encode())


def test_ranges_are_merged_where_one_begins_at_the_end_of_another():
    """However they are dealt to tasks."""
    assert merged([OffsetRange("a", 0, 7, 9), A1, OffsetRange("a", 0, 5, 7)]) == (A0, A1)
    assert merged([OffsetRange("a", 0, 7, 9), OffsetRange("a", 0, 5, 6)]) == (
        OffsetRange("a", 0, 5, 6),
        OffsetRange("a", 0, 7, 9),
    )


def test_a_new_micro_batch_is_written_from_the_ranges_that_spark_gives():
    """With a digest in which the places of rows count."""
    assignment, ranges = assign_ranges(head(None), 7, 1, 3, 0, given(A0))
    assert (assignment.work, assignment.digest_by, ranges) == (Work.WRITE, Digest.CHUNKS, (A0,))
    assert assign_ranges(head(None), 7, 1, 3, 0, given(A0, transform=None))[0].digest_by is Digest.BATCHES


def test_nothing_is_read_for_a_decision_that_has_lost_nothing():
    """However its ranges are dealt to tasks now."""
    last = decision(written(0, A0), written(1, A1))
    for partition in range(2):
        assignment, ranges = assign_ranges(head(last), 7, partition, 2, 0, given(A1, A0))
        assert (assignment.work, assignment.name, ranges) == (Work.COUNT, None, ())


@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
def test_lost_transactions_are_written_again_from_their_own_ranges_by_any_number_of_tasks(tasks):
    """Each of them once, digested as it was."""
    lost = [written(0, A0, verdict=Verdict.LOST), written(2, A1, B0, verdict=Verdict.LOST)]
    last = decision(lost[0], written(1, OffsetRange("a", 2, 0, 5), verdict=Verdict.COMMITTED), lost[1])
    found: list[OffsetRange] = []
    for partition in range(tasks):
        assignment, ranges = assign_ranges(head(last), 7, partition, tasks, 0, given())
        assert (assignment.work is Work.REPAIR) == bool(ranges) == (assignment.name is not None)
        assert assignment.digest_by is last.digest_by is Digest.CHUNKS
        found += ranges
    assert sorted(found) == sorted((A0, A1, B0))


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (given(A0, A1, transform=None), "the transform: decided m:f, now none"),
        (given(A0, A1, cluster="d"), "the source's cluster: decided c, now d"),
        (None, "the way of the rows: decided ranges of offsets, now rows through Spark"),
        (given(A0), "ranges: decided a-1 0 to 3, now fewer"),
        (given(A0, A1, B0), "ranges: decided fewer, now b-0 7 to 8"),
        (replace(given(A0, A1), topics=(("a", "id-of-another"),)), "topics and their ids"),
    ],
)
def test_a_replay_of_something_else_is_not_what_was_decided(now, what):
    """The error says what differs, and nothing is written for it where the task can tell."""
    last = decision(written(0, A0), rest=(A1,))
    assert [what in unlike for unlike in differences(last, now)] == [True]


def test_a_task_of_another_way_writes_nothing_at_all():
    """Before it takes a name: what it would write was not decided."""
    last = decision(written(0, A0, verdict=Verdict.LOST))
    with pytest.raises(Diverged) as caught:
        assign_ranges(head(replace(last, copied_from=None)), 7, 0, 1, 0, given(A0))
    assert caught.value.condition == "EOS_REPLAY_DIVERGED"


def test_a_decision_has_the_epochs_of_its_ranges():
    """By which the same offsets of a log that was cut and has grown again are not the same."""
    here, part = replace(A0, first_epoch=2, last_epoch=4, most_epoch=4), replace(A1, most_epoch=4)
    last = decision(written(0, here, B0), written(1, part), rest=(replace(OffsetRange("b", 1, 0, 9), last_epoch=0),))
    found = decode(encode(head(last))).decision
    assert [[r.last_epoch for r in w.ranges] for w in found.written] == [[4, -1], [-1]]
    assert [r.last_epoch for r in found.copied_from.ranges] == [0]
    same = given(here, B0, part, OffsetRange("b", 1, 0, 9))
    assert differences(found, same) == []
    other = given(replace(here, last_epoch=6), B0, part, OffsetRange("b", 1, 0, 9))
    (unlike,) = differences(found, other)
    assert "decided with leader epoch 4, now 6" in unlike


def test_epochs_of_another_cluster_say_nothing_of_a_log():
    """That it was cut would be untrue: it is another one."""
    last = decision(written(0, replace(A0, last_epoch=4)))
    (unlike,) = differences(last, given(replace(A0, last_epoch=6), cluster="d"))
    assert "cluster" in unlike


def test_merged_ranges_have_the_epochs_of_their_ends():
    """The first one's of the start, the last one's of the end."""
    parts = [OffsetRange("a", 0, 7, 9, "", -1, 4, 4), OffsetRange("a", 0, 5, 7, "", 2, -1, 4)]
    (whole,) = merged(parts)
    assert (whole.first_epoch, whole.last_epoch, whole.most_epoch) == (2, 4, 4)


@pytest.mark.parametrize(("before", "now", "same"), [(0, 1, False), (1, 0, False), (0, 0, True), (-1, 0, True)])
def test_the_first_leader_epoch_of_a_topic_is_one_as_any_other(before: int, now: int, same: bool):
    """Each new topic begins with epoch 0; one that is not known is no difference."""
    last = decision(written(0, replace(A0, last_epoch=before)))
    assert (differences(last, given(replace(A0, last_epoch=now))) == []) == same
