"""Entries of the offset map: runs, records, and where a position of the source is in the target."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.pipelines.mirror import entries as module
from spark_eos.pipelines.mirror.entries import (
    Extent,
    MapEntry,
    OffsetRun,
    SourcePartition,
    extent,
    from_record,
    has_rows,
    key_of,
    partition_of,
    position_in,
    prefix_of,
    runs_of,
    split,
    split_key,
    to_record,
)

HERE = SourcePartition("cluster", "id", 3)

steps = st.lists(st.integers(1, 3), max_size=60)


def gaps(offsets: list[int]) -> list[tuple[int, int]]:
    """Offsets as what lies without a gap."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and sum(found[-1]) == offset:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((offset, 1))
    return found


def entry(source: list[int], target: list[int], first: int, end: int) -> MapEntry:
    return MapEntry(HERE, "in", first, end, "out", "out-id", runs_of(gaps(source), gaps(target)))


@given(steps, st.data())
def test_each_row_is_found_where_it_is(jumps, data):
    """Whatever the gaps on both sides: by runs, by records, and cut into several of them."""
    source = [10 + at for at in accumulate(jumps)]
    others = data.draw(st.lists(st.integers(1, 3), min_size=len(source), max_size=len(source)))
    target = [100 + at for at in accumulate(others)]
    end = (source[-1] if source else 10) + data.draw(st.integers(1, 3))
    whole = entry(source, target, 10, end)
    key, value = to_record(whole)
    assert from_record(key, value) == whole
    bounds = (source[-1] + 1, target[0], target[-1] + 1) if source else (-1, -1, -1)
    assert has_rows(value) is bool(source)
    assert extent(10, value) == Extent(end, *bounds, "out-id")
    assert [position_in(whole, offset).offset for offset in source] == target
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_RUNS", data.draw(st.integers(1, 5)))
        parts = list(split(whole))
    assert [(part.first, part.end) for part in parts] == list(pairwise([*(part.first for part in parts), end]))
    assert sum((part.runs for part in parts), ()) == whole.runs


@given(steps, st.integers(0, 200))
def test_a_reader_misses_nothing_and_sees_nothing_twice(jumps, offset):
    """Of the rows, those before the position are before the one in the target; the others are not."""
    source = [10 + at for at in accumulate(jumps)]
    target = [2 * at for at in range(len(source))]
    if not source:
        return  # then the map does not tell
    place = position_in(entry(source, target, 10, 250), offset).offset
    assert [at < place for at in target] == [at < offset for at in source]


@given(st.integers(0, 2**63 - 1), st.integers(0, 99))
def test_keys(first, partition):
    """They are JSON, and taken apart without reading it; no key of one partition begins as those of another."""
    source = SourcePartition("cluster", "id", partition)
    key = key_of(prefix_of(source), first)
    assert split_key(key) == (prefix_of(source), first)
    assert json.loads(key) == {"cluster": "cluster", "topic": "id", "partition": partition, "first": first}
    origin = b'{"origin": "x", "source": "y"}'
    assert split_key(origin) is None and from_record(origin, b"{}") is None


def test_a_number_of_rows_that_differs():
    """Nobody could say which row is where."""
    with pytest.raises(ValueError, match="not as many"):
        runs_of([(0, 3)], [(0, 2)])
    with pytest.raises(ValueError, match="not as many"):
        runs_of([(0, 2)], [(0, 3)])


def test_neighbours_are_one_run():
    """However the batches were cut."""
    assert runs_of([(5, 6)], [(1, 2), (3, 4)]) == (OffsetRun(5, 1, 6),)


def test_the_first_partition_is_for_origins():
    """Whatever the source; a topic of one partition has all in it."""
    assert 0 not in {partition_of(SourcePartition("c", str(i), i), 9) for i in range(500)}
    assert partition_of(HERE, 1) == 0


@pytest.mark.parametrize("count", [10, 50])
def test_a_map_that_gets_more_partitions(count):
    """Its entries stay where they are."""
    places = [SourcePartition("c", str(i), i) for i in range(500)]
    assert [partition_of(place, count) for place in places] == [partition_of(place, 9) for place in places]
