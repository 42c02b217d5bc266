"""The reader of a query from a table to topics, which Spark calls as it calls that of topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.errors import stop
from spark_eos.pipelines.copy.from_table.plan import FromTablePlan, TableFile
from spark_eos.pipelines.copy.from_table.planning import (
    FilesOfVersion,
    beginning,
    files_between,
    in_any_order,
    next_end,
)
from spark_eos.pipelines.copy.from_table.position import NEW, TablePosition, check_reads, from_spark, to_spark
from spark_eos.pipelines.tables.delta.log import TableLog
from spark_eos.pipelines.tables.delta.source import other_table
from spark_eos.source.range_reader import RangeReader
from spark_eos.spi import RangesOfTask, hidden_traceback


class FileStreamReader(RangeReader):
    """Plans micro-batches of a table's files, and hands these to the tasks."""

    def __init__(self, plan: FromTablePlan, events: Events = NOWHERE) -> None:
        self._plan = plan
        self._reached: dict[str, Any] | None = None
        self._newest: int | None = None

    @cached_property
    def _log(self) -> TableLog:
        return TableLog(self._plan.table)

    @property
    def _path(self) -> str:
        return self._plan.table.location.path

    # On the driver

    def initialOffset(self) -> dict[str, Any]:
        """Return the same offset always: the beginning of a query is noted in the end of its first micro-batch."""
        return dict(NEW)

    @hidden_traceback()
    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the table's current version in this run, which then ends. Raises TableError."""
        self._newest = self._log.newest()

    @hidden_traceback()
    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """Return where the next micro-batch ends; ``start`` itself when there is nothing to do. A Spark without
        admission control passes neither argument.

        Raises TableError, and DataLossError (EOS_DELTA_DATA_LOSS).
        """
        start = start or self._reached or self.initialOffset()
        is_new = start == NEW
        begin = self._begin() if is_new else self._position(start)
        if begin.commit is not None:
            self._log.check(*begin.commit)
        end = next_end(self._log, begin, self._plan.limits, self._newest, self._path)
        if is_new:
            return to_spark(replace(end, begin=begin))
        return start if end == replace(begin, begin=None) else to_spark(end)

    @hidden_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangesOfTask]:
        """Return the files of one micro-batch, by the offset log and the table's log, which never changes. Raises
        TableError and DataLossError before any task."""
        self._reached = end
        if start == end:
            return []
        to = self._position(end)
        begin = to.begin if start == NEW else self._position(start)
        if begin is None:
            raise stop(
                "EOS_DELTA_LOG_DAMAGED", cause=f"the first offset of the query does not say where it began: {to}"
            )
        if begin.commit is not None:
            self._log.check(*begin.commit)
        groups = list(files_between(self._log, begin, to, self._path))
        # The changes of a key have an order, which only one task and its one transaction can keep. Shared out by keys,
        # each task would have to read and transform all rows, as the transform makes the keys.
        is_shared = not self._plan.table.changes or in_any_order(groups)
        return dealt(groups, self._plan.tasks if is_shared else 1)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return, for the query's progress, where the last micro-batch ends, and ``#written``: the rows and bytes of
        the one before."""
        last = self._plan.written.last()
        if self._reached is None or last is None:
            return self._reached
        return self.with_counts(self._reached, written=last)

    # Steps

    def _begin(self) -> TablePosition:
        """Return where a new query begins. Raises TableError."""
        table, version = self._plan.table, self._plan.starting_version
        if version is not None:
            if self._log.files(version) is None:
                raise stop("EOS_DELTA_NO_TABLE.version", cause=f"{self._path} has no version {version}")
            self._log.check_begin(version)
            return beginning(table.id, version, None, None, changes=table.changes)
        newest = self._log.newest() if self._newest is None else self._newest
        return beginning(table.id, newest, self._log.first(newest), self._log.mark(newest), changes=table.changes)

    def _position(self, logged: dict[str, Any]) -> TablePosition:
        """Parse a position. Raises TableError where the checkpoint belongs to another table, or to a query through
        Spark."""
        position = from_spark(logged)
        if position is None:
            raise stop("EOS_DELTA_OTHER_SOURCE.through_spark", path=self._path)
        if position.table != self._plan.table.id:
            raise other_table(self._path, f"its id is {self._plan.table.id}, and the checkpoint has {position.table}")
        check_reads(position, self._path, changes=self._plan.table.changes)
        return position


def dealt(groups: Iterable[FilesOfVersion], tasks: int) -> list[RangesOfTask]:
    """Deal the files, in their order, to at most so many tasks, each with about as many bytes."""
    files = [
        TableFile(group.version, group.at_first, number, **row)
        for group in groups
        for number, row in enumerate(group.files.to_pylist(), group.first)
    ]
    total, before = sum(file.size for file in files), 0
    shares: dict[int, list[TableFile]] = {}
    for file in files:
        shares.setdefault(min(before * tasks // max(total, 1), tasks - 1), []).append(file)
        before += file.size
    return [RangesOfTask(tuple(share), len(shares)) for share in shares.values()]
