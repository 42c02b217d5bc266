"""From where to where a micro-batch reads."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_eos.errors import DataLossError
from spark_eos.source import planning
from spark_eos.source.planning import OffsetRange


def flat(offsets):
    return {(topic, p): at for topic, partitions in offsets.items() for p, at in partitions.items()}


def test_without_pressure_a_micro_batch_goes_to_the_end():
    """All that is stable, in every partition."""
    assert planning.advance({"a": {0: 1, 1: 5}}, {"a": {0: 10, 1: 5}}, 9) == {"a": {0: 10, 1: 5}}


def test_the_limit_is_shared_by_what_waits():
    """Three quarters of the backlog get three quarters of the limit."""
    assert planning.advance({"a": {0: 0}, "b": {0: 0}}, {"a": {0: 300}, "b": {0: 100}}, 40) == {
        "a": {0: 30},
        "b": {0: 10},
    }


def test_a_partition_with_little_is_not_starved():
    """One offset at least, even where its share is less than one."""
    assert planning.advance({"a": {0: 0, 1: 0}}, {"a": {0: 10_000, 1: 1}}, 10) == {"a": {0: 9, 1: 1}}


def test_a_stable_end_before_the_start_holds_the_partition():
    """A transaction that is open may have begun before an offset that the user gave."""
    assert planning.advance({"a": {0: 10, 1: 0}}, {"a": {0: 7, 1: 2}}, 99) == {"a": {0: 10, 1: 2}}


partitions = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 1000), st.integers(0, 500)), min_size=1)


@given(st.dictionaries(st.sampled_from("abc"), partitions, min_size=1), st.integers(20, 2000))
@settings(deadline=None)  # the machine may be busy; the number of steps is bounded
def test_every_limit_moves_forward_and_arrives(sizes, limit):
    """Never back, never past the end, never far over the limit; repeated, it reaches the end and stays there."""
    at = {t: {p: begin for p, (begin, _) in parts.items()} for t, parts in sizes.items()}
    ends = {t: {p: begin + size for p, (begin, size) in parts.items()} for t, parts in sizes.items()}
    while True:
        then = planning.advance(at, ends, limit)
        steps = [flat(then)[key] - flat(at)[key] for key in flat(at)]
        assert all(flat(then)[key] <= flat(ends)[key] for key in flat(at))
        assert min(steps) >= 0
        assert sum(steps) <= limit + len(steps)
        if not sum(steps):
            break
        at = then
    assert at == ends


def test_ranges_are_sorted_and_leave_out_what_is_empty_or_new():
    """What the offset log does not hold yet is only recorded by this micro-batch."""
    start = {"b": {0: 1}, "a": {10: 0, 2: 0, 3: 4}}
    end = {"b": {0: 2, 1: 9}, "a": {10: 1, 2: 1, 3: 4}, "c": {0: 8}}
    assert planning.ranges(start, end) == [
        OffsetRange("a", 2, 0, 1),
        OffsetRange("a", 10, 0, 1),
        OffsetRange("b", 0, 1, 2),
    ]


def test_a_start_behind_the_logged_end_reads_nothing():
    """As when micro-batch 0 is replayed: `latest` has moved on since."""
    assert planning.ranges({"a": {0: 9}}, {"a": {0: 5}}) == []


def test_a_range_travels_to_its_task():
    """As Spark sends it."""
    sent = OffsetRange("a", 1, 2, 3)
    assert pickle.loads(pickle.dumps(sent)) == sent


@pytest.mark.parametrize(
    ("check", "topic_partition", "expected", "found"),
    [
        (lambda: planning.check_partitions({"a": {0: 3}}, {"b": 1}), "a-0", 3, None),
        (lambda: planning.check_partitions({"a": {0: 3, 2: 4}}, {"a": 2}), "a-2", 4, None),
        (lambda: planning.check_begin([OffsetRange("a", 1, 2, 9)], {"a": {1: 5}}), "a-1", 2, 5),
        (lambda: planning.check_end({"a": {1: 9}}, {"a": {1: 4}}), "a-1", 9, 4),
    ],
)
def test_data_loss_names_partition_and_both_offsets(check, topic_partition, expected, found):
    """What was expected, what is there."""
    with pytest.raises(DataLossError, match=topic_partition) as caught:
        check()
    assert caught.value.condition == "EOS_SOURCE_DATA_LOSS"
    assert (caught.value.parameters["expected"], caught.value.parameters["found"]) == (expected, found)


def test_nothing_lost_is_no_error():
    """Equal offsets are the usual case."""
    planning.check_partitions({"a": {0: 3}}, {"a": 1, "b": 1})
    planning.check_begin([OffsetRange("a", 0, 3, 4)], {"a": {0: 3}})
    planning.check_end({"a": {0: 3}}, {"a": {0: 3}})
