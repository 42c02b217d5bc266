"""The offset map without a cluster: runs, records, and where a position of the source is in the target."""

from __future__ import annotations

import json
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import KafkaError
from spark_eos.mirror import entries as module
from spark_eos.mirror.entries import (
    MapEntry,
    OffsetRun,
    SourcePartition,
    Translation,
    cut,
    from_record,
    partition_of,
    runs_of,
    to_record,
)
from spark_eos.mirror.map_topic import OffsetMap

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
    assert from_record(*to_record(whole)) == whole
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_RUNS", data.draw(st.integers(1, 5)))
        parts = list(cut(whole))
    translation = Translation(parts[::-1])
    assert [translation.place(offset).offset for offset in source] == target
    assert all(translation.covers(offset) for offset in range(10, end + 1))
    assert not translation.covers(9)
    assert not translation.covers(end + 1)


@given(steps, st.integers(0, 200))
def test_a_reader_misses_nothing_and_sees_nothing_twice(jumps, offset):
    """Of the rows, those before the position are before the one in the target; the others are not."""
    source = [10 + at for at in accumulate(jumps)]
    target = [2 * at for at in range(len(source))]
    translation = Translation([entry(source, target, 10, 250)])
    place = translation.place(offset).offset
    assert [at < place for at in target] == [at < offset for at in source]


def test_rows_that_were_mirrored_twice_are_not_translated():
    """A mirror has begun anew, before the end of what is there, and with other cuts: each row is at two places."""
    map_ = OffsetMap([entry([0, 1], [0, 1], 0, 2), entry([2, 3], [2, 3], 2, 4), entry([1, 2], [5, 6], 1, 3)], "cluster")
    for offset in range(5):
        with pytest.raises(KafkaError, match="EOS_MIRROR_NOT_COVERED") as caught:
            map_.translate("in", 3, offset)
        assert "mirrored more than once" in caught.value.hint
    assert not Translation([entry([0], [0], 0, 2), entry([], [], 2, 3)]).doubled


def test_a_hole_is_not_covered():
    """Rows between two entries were never mirrored; the edges were."""
    translation = Translation([entry([0, 1], [0, 1], 0, 2), entry([8], [2], 8, 9)])
    assert [offset for offset in range(11) if translation.covers(offset)] == [0, 1, 2, 8, 9]


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


def test_a_record_of_somebody_else():
    """Origins are in the same topic."""
    assert from_record(json.dumps({"origin": "x", "source": "y"}).encode(), b"{}") is None


def test_other_clusters_and_ids():
    """A map holds those of several sources; a name that two topics had, one after the other, needs the id."""
    again = MapEntry(SourcePartition("cluster", "new", 3), "in", 0, 1, "out", "out-id", (OffsetRun(0, 50, 1),))
    other = MapEntry(SourcePartition("another", "id", 3), "in", 0, 1, "out", "out-id", (OffsetRun(0, 70, 1),))
    map_ = OffsetMap([entry([0], [0], 0, 1), again, other], "cluster")
    assert map_.topics() == {"in": ["id", "new"]}
    assert map_.translate("in", 3, 0, topic_id="new").offset == 50
    for offset, id_ in ((0, None), (7, "id"), (0, "unknown")):
        with pytest.raises(KafkaError, match="EOS_MIRROR_NOT_COVERED"):
            map_.translate("in", 3, offset, topic_id=id_)
