"""From where to where a micro-batch reads."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.base.topic_partition import OffsetRange, flat
from spark_eos.source import range_math
from spark_eos.source.losses import Losses


@pytest.mark.parametrize(
    ("starts", "ends", "limit", "reached"),
    [
        ((0, 0), (300, 100), 40, (30, 10)),
        ((0, 0), (10_000, 1), 10, (9, 1)),  # one offset at least, even where its share is less than one
        ((10, 0), (7, 2), 99, (10, 2)),  # a transaction that is open may have begun before an offset of the user
    ],
)
def test_the_limit_is_shared_by_what_waits(starts, ends, limit, reached):
    """Three quarters of the backlog get three quarters of the limit."""
    at, end, then = ({"a": {0: first}, "b": {0: second}} for first, second in (starts, ends, reached))
    assert range_math.advance(at, end, limit) == then


partitions = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 1000), st.integers(0, 500)), min_size=1)


@given(st.dictionaries(st.sampled_from("abc"), partitions, min_size=1), st.integers(20, 2000))
def test_every_limit_moves_forward_and_arrives(sizes, limit):
    """Never back, never past the end, never far over the limit, nor under it while there is more; repeated, it reaches
    the end and stays there."""
    at = {t: {p: begin for p, (begin, _) in parts.items()} for t, parts in sizes.items()}
    ends = {t: {p: begin + size for p, (begin, size) in parts.items()} for t, parts in sizes.items()}
    while True:
        then = range_math.advance(at, ends, limit)
        steps = [flat(then)[key] - flat(at)[key] for key in flat(at)]
        assert all(flat(then)[key] <= flat(ends)[key] for key in flat(at))
        assert min(steps) >= 0
        left = sum(flat(ends).values()) - sum(flat(at).values())
        assert min(limit, left) <= sum(steps) <= limit + len(steps)
        if not sum(steps):
            break
        at = then
    assert at == ends


def test_ranges_are_sorted_and_leave_out_what_is_empty_or_new():
    """What the offset log does not hold yet is only recorded by this micro-batch. A start may be behind the logged end:
    when micro-batch 0 is replayed, `latest` has moved on since."""
    start = {"b": {0: 1}, "a": {10: 0, 2: 0, 3: 4, 4: 9}}
    end = {"b": {0: 2, 1: 9}, "a": {10: 1, 2: 1, 3: 4, 4: 5}, "c": {0: 8}}
    assert range_math.ranges(start, end) == [
        OffsetRange("a", 2, 0, 1),
        OffsetRange("a", 10, 0, 1),
        OffsetRange("b", 0, 1, 2),
    ]


def test_what_is_left_of_a_range_after_a_loss(caplog):
    """The part that the log holds; each loss is said and counted once, however often it is met. Equal offsets are the
    usual case, and no loss."""
    losses = Losses(fail=False)
    reads = [OffsetRange("a", p, 2, 9) for p in range(4)]
    for _ in range(2):
        left = range_math.from_the_log(reads, {"a": {0: 5, 1: 20, 2: 2, 3: 2}}, losses.report)
    assert left == [OffsetRange("a", 0, 5, 9), *reads[2:]]
    left = range_math.up_to_the_end(left, {"a": {0: 5, 2: 7, 3: 9}}, losses.report)
    assert left == [OffsetRange("a", 2, 2, 7), reads[3]]
    assert losses.count == 4
    assert caplog.text.count("failOnDataLoss is false") == 4
    assert "Expected offset 2 of a-0, but its log now starts at 5" in caplog.text
    assert "Expected offset 9 of a-2, but its log ends at 7" in caplog.text


# More tasks than partitions


def sizes(parts):
    return [part.end - part.start for part in parts]


def test_large_ranges_are_divided_to_reach_the_least_number_of_tasks():
    """By size; small ones are left whole."""
    reads = [OffsetRange("a", 0, 0, 1), OffsetRange("a", 1, 0, 1000), OffsetRange("b", 0, 0, 3000)]
    parts = range_math.split(reads, 9, None)
    assert sizes(parts) == [1, 500, 500, 500, 500, 500, 500, 500, 500]
    assert range_math.split(reads, 3, None) == reads


a_range = st.builds(
    lambda p, start, size: OffsetRange("t", p, start, start + size),
    st.integers(0, 9),
    st.integers(0, 99),
    st.integers(1, 500),
)


@given(
    st.lists(a_range, min_size=1, max_size=8, unique_by=lambda r: r.partition),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 200),
)
def test_parts_make_up_the_ranges(reads, least, most):
    """In order, without gap or overlap, none empty, none too large; about as many as asked for."""
    parts = range_math.split(reads, least, most)
    for r in reads:
        own = [part for part in parts if part.partition == r.partition]
        assert [own[0].start, own[-1].end] == [r.start, r.end]
        assert all(one.end == other.start for one, other in itertools.pairwise(own))
    assert min(sizes(parts)) >= 1
    assert most is None or max(sizes(parts)) <= most
    if least is not None and most is None and sum(sizes(reads)) >= 20 * least:
        assert abs(len(parts) - max(least, len(reads))) <= len(reads)


# Tasks


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 2 * range_math.FEW)), max_size=20))
def test_ranges_of_few_rows_share_a_task(sizes):
    """All of them, in order; none that has more beside another; and two neighbours only where they are too many."""
    reads = [OffsetRange("t", p, begin, begin + size) for p, (begin, size) in enumerate(sizes)]
    tasks = range_math.tasks(reads, None, None)
    assert [r for task in tasks for r in task.ranges] == reads
    rows = [sum(r.end - r.start for r in task.ranges) for task in tasks]
    assert all(count <= range_math.FEW or len(task.ranges) == 1 for count, task in zip(rows, tasks, strict=True))
    firsts = [task.ranges[0].end - task.ranges[0].start for task in tasks]
    assert all(rows[i] + firsts[i + 1] > range_math.FEW for i in range(len(tasks) - 1))


@given(st.lists(st.integers(1, 2 * range_math.MANY // range_math.MANY_RANGES), max_size=60), st.integers(1, 40))
def test_ranges_share_a_task_up_to_more_where_each_core_has_one(sizes, cores):
    """All of them, in order. Two neighbours only where they are too many together, in offsets or in ranges."""
    reads = [OffsetRange("t", p, 7, 7 + size) for p, size in enumerate(sizes)]
    tasks = range_math.tasks(reads, None, None, cores)
    assert [r for task in tasks for r in task.ranges] == reads
    most = min(range_math.MANY, sum(sizes) // cores)

    def fits(ranges):
        offsets = sum(r.end - r.start for r in ranges)
        return offsets <= range_math.FEW or (offsets <= most and len(ranges) <= range_math.MANY_RANGES)

    assert all(len(task.ranges) == 1 or fits(task.ranges) for task in tasks)
    assert not any(fits([*one.ranges, other.ranges[0]]) for one, other in itertools.pairwise(tasks))
    if all(size > range_math.FEW for size in sizes):
        assert len(tasks) >= min(cores, len(reads))


@pytest.mark.parametrize("cores", [None, 2])
@pytest.mark.parametrize("asked", [(1, None), (None, 100)])
def test_who_says_how_many_tasks_gets_one_for_each_range(asked, cores):
    """With minPartitions or maxRecordsPerPartition, ranges are not put together."""
    reads = [OffsetRange("t", p, 0, 3) for p in range(4)]
    assert range_math.tasks(reads, *asked, cores) == [range_math.RangeTask((r,)) for r in reads]
