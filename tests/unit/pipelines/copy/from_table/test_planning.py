"""Micro-batches of a table's files: each file once and in order, however they are cut and often they are run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.errors import stop
from spark_eos.pipelines.copy.from_table.planning import (
    ALONE_BYTES,
    MOST_VERSIONS,
    Limits,
    beginning,
    files_between,
    in_any_order,
    next_end,
)
from spark_eos.pipelines.copy.from_table.position import TablePosition, from_spark, to_spark
from spark_eos.pipelines.copy.from_table.source import dealt
from spark_eos.pipelines.tables.delta.versions import FILES, VersionFiles
from tests.support.judges.conditions import raises

#: (version, of the first files, number), and the name.
Read = list[tuple[int, bool, int, str]]


@dataclass
class MadeUpLog:
    """``versions``: the sizes of the files that each appends; ``first``: those that the table has at version 0;
    ``kinds``: of the files of some versions."""

    versions: list[list[int]]
    at_first: list[int]
    there: int = 0
    kinds: dict[int, str] = field(default_factory=dict)

    def files(self, version: int) -> VersionFiles | None:
        kind = self.kinds.get(version, "insert")
        return self._group(f"v{version}", self.versions[version], kind) if version < self.there else None

    def first(self, version: int) -> VersionFiles:
        return self._group(f"first{version}", self.at_first)

    def _group(self, name: str, sizes: list[int], kind: str = "insert") -> VersionFiles:
        rows = [{"path": f"{name}.{n}", "size": size, "partition": "[]", "kind": kind} for n, size in enumerate(sizes)]
        return VersionFiles(pa.Table.from_pylist(rows, FILES), f"mark of {name} {sizes}")

    def everything(self, *, with_first: bool) -> Read:
        read = [(0, True, n, f"first0.{n}") for n in range(len(self.at_first))] if with_first else []
        for version in range(1 if with_first else 0, len(self.versions)):
            read += [(version, False, n, f"v{version}.{n}") for n in range(len(self.versions[version]))]
        return read


def read_between(log: MadeUpLog, start: TablePosition, end: TablePosition) -> Read:
    return [
        (group.version, group.at_first, number, path)
        for group in files_between(log, start, end, "t")
        for number, path in enumerate(group.files["path"].to_pylist(), group.first)
    ]


SIZES = st.lists(st.integers(0, 20), max_size=5)


@pytest.mark.parametrize("changes", [False, True])
@given(
    st.lists(SIZES, min_size=1, max_size=12),
    st.one_of(st.none(), SIZES),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(0, 12)), max_size=30),
)
def test_each_file_is_read_once_in_order(changes, versions, at_first, steps) -> None:
    """By micro-batches of any limits, while versions come; their ends go through JSON, and replays read the same.
    Changes are read by whole versions; the files that are there at first may be cut, and are by themselves."""
    log = MadeUpLog(versions, at_first or [], there=1)
    group = None if at_first is None else log.first(0)
    position = beginning("id", 0, group, None, changes=changes)
    read: Read = []
    for files, size, there in [*steps, (3, 30, 0), *[(1000, 1000, len(versions))] * 3]:
        log.there = max(log.there, min(there, len(versions)))
        end = next_end(log, position, Limits(files, size), None, "t")
        assert from_spark(to_spark(end)) == end and end.changes == changes
        now = read_between(log, position, end)
        assert now == read_between(log, position, end)
        of_versions = {version for version, at_first, _, _ in now if not at_first}
        if changes:
            assert end.file == 0 or end.first is not None
            assert len({at_first for _, at_first, _, _ in now}) <= 1
        if not changes or len(of_versions) > 1:
            assert len(now) <= files
            assert len(now) <= 1 or sum(_size(log, path) for *_, path in now) <= size
        read, position = read + now, end
    assert read == log.everything(with_first=at_first is not None)
    assert next_end(log, position, Limits(1, 1), None, "t") == position


def test_a_large_version_that_needs_no_order_is_read_by_itself() -> None:
    """So that several tasks write it; one that needs an order is read with others."""
    half = ALONE_BYTES // 2
    sizes = [[1], [half, half], [1], [half, half], [half], [2 * half], [1]]
    log = MadeUpLog(sizes, [], there=7, kinds={3: "change"})
    at, ends = beginning("id", 0, None, None, changes=True), []
    while (end := next_end(log, at, Limits(100, 100 * half), None, "t")) != at:
        ends.append(end.version)
        at = end
    assert ends == [1, 2, 7]


@pytest.mark.parametrize(
    ("kinds", "versions", "free"),
    [
        ({}, [0], True),
        ({0: "delete"}, [0], True),
        ({}, [0, 1], False),
        ({0: "change"}, [0], False),
        ({0: "change"}, [1], True),
    ],
)
def test_changes_of_one_kind_and_version_need_no_order(kinds, versions, free) -> None:
    """So several tasks may write them."""
    log = MadeUpLog([[1, 1], [1, 1]], [], there=2, kinds=kinds)
    groups = list(files_between(log, TablePosition("id", versions[0]), TablePosition("id", versions[-1] + 1), "t"))
    assert in_any_order(groups) == free


def _size(log: MadeUpLog, path: str) -> int:
    name, _, number = path.partition(".")
    sizes = log.at_first if name.startswith("first") else log.versions[int(name[1:])]
    return sizes[int(number)]


def test_a_run_up_to_a_version_reads_no_later_one() -> None:
    """As for the trigger availableNow."""
    log = MadeUpLog([[1], [2], [3]], [], there=3)
    end = next_end(log, beginning("id", 0, None, None), Limits(10, 100), 1, "t")
    assert end.version == 2 and len(read_between(log, beginning("id", 0, None, None), end)) == 2


def test_many_versions_without_rows_are_passed_in_steps() -> None:
    """So that a plan comes to an end."""
    log = MadeUpLog([[]] * (MOST_VERSIONS + 5), [], there=MOST_VERSIONS + 5)
    end = next_end(log, beginning("id", 0, None, None), Limits(1, 1), None, "t")
    assert end.version == MOST_VERSIONS and end.commit is not None
    assert next_end(log, end, Limits(1, 1), None, "t").version == MOST_VERSIONS + 5


def test_what_comes_before_a_version_that_is_refused_is_read_first() -> None:
    """Then the next plan says what is wrong."""

    class Refusing(MadeUpLog):
        def files(self, version: int) -> VersionFiles | None:
            if version == 2:
                raise stop("EOS_DELTA_ROWS_CHANGED", cause="version 2")
            return super().files(version)

    log, start = Refusing([[1], [2], [3]], [], there=3), beginning("id", 0, None, None)
    end = next_end(log, start, Limits(10, 100), None, "t")
    assert end.version == 2 and len(read_between(log, start, end)) == 2
    with raises("EOS_DELTA_ROWS_CHANGED"):
        next_end(log, end, Limits(10, 100), None, "t")


def test_a_replay_over_another_log_is_refused() -> None:
    """First files that have changed, a version that was written anew, one that is gone."""
    log = MadeUpLog([[1], [2, 2], [3]], [5, 5], there=3)
    start = beginning("id", 0, log.first(0), "mark")
    end = next_end(log, start, Limits(3, 100), None, "t")
    assert (end.version, end.file) == (1, 1)
    with raises("EOS_OTHER_TABLE"):
        read_between(replace(log, at_first=[5, 6]), start, end)
    with raises("EOS_OTHER_TABLE"):
        read_between(replace(log, versions=[[1], [2, 3], [3]]), start, end)
    with raises("EOS_DELTA_DATA_LOSS"):
        read_between(replace(log, there=1), start, end)
    with raises("EOS_DELTA_LOG_DAMAGED"):
        read_between(log, end, start)


@given(SIZES, st.integers(1, 7))
def test_tasks_have_all_files_in_order(sizes, tasks) -> None:
    """No task is empty, and there are at most as many as may be."""
    log = MadeUpLog([sizes, [1]], [], there=2)
    start = beginning("id", 0, None, None)
    dealt_to = dealt(files_between(log, start, TablePosition("id", 2), "t"), tasks)
    paths = [file.path for task in dealt_to for file in task.ranges]
    assert paths == [path for *_, path in log.everything(with_first=False)]
    assert len(dealt_to) <= tasks and all(task.ranges for task in dealt_to)
    assert {task.tasks for task in dealt_to} == {len(dealt_to)}


def test_offsets_of_others_are_none_of_ours() -> None:
    """Delta's own, Kafka's, and what is cut off."""
    theirs = {"sourceVersion": 3, "reservoirId": "x", "reservoirVersion": 4, "index": -1, "isStartingVersion": False}
    for logged in (theirs, {"topic": {"0": 5}}, {"table": "x", "version": 1}, None, []):
        assert from_spark(logged) is None  # type: ignore[arg-type]  # whatever there may be
