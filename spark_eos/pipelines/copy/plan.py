"""A query over ranges, as it travels to Spark's Python processes: with its data source, never as an option.

===============  ========================================  ==============================================
plan             reads                                     writes
===============  ========================================  ==============================================
`CopyPlan`       ranges of topics (`FromTopics`)           to topics (`ToTopics`)
`MirrorPlan`     the same                                  to topics, and the offset map beside them
`TablePlan`      the same                                  files, which a table's commit adds together
`FromTablePlan`  files of a table                          to topics (`ToTopics`)
===============  ========================================  ==============================================
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import pyarrow as pa

from spark_eos.pipelines.copy.written import LastWritten
from spark_eos.spi import Columns, SinkOptions, SourceOptions

Function = Callable[[pa.RecordBatch], object]


@runtime_checkable
class ByRange(Protocol):
    """A function whose result also depends on the schema ids that a registry knows when it is asked. Unknown ids are
    noted in the decision, for each range of offsets, so that a replay gets the same result."""

    def __call__(self, batch: pa.RecordBatch) -> object: ...

    def for_range(self, noted: Collection[str] | None) -> ByRange:
        """Return the function for all records of one range, which come in chunks. ``noted``: the `unknown` ids of a
        range that is decided; None for a new range."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """Runs of the unknown ids so far, sorted."""


#: The rule of copies by which a record goes to the partition of the same number.
SAME = "same"

#: Columns of records that a query copies whole.
COPY_COLUMNS = Columns(key=True, topic=False, partition=True, headers=True, timestamp=True)


#: Columns of a transform's dead letters.
LETTER_COLUMNS = Columns(key=True, topic=False, partition=False, headers=True, timestamp=False)

#: How records that a transform rejects are handled: the query stops, they are left out, or they go to the topic of the
#: sink's option `deadLetters.topic`.
OnMalformed = Literal["fail", "drop", "deadLetters"]


@dataclass(frozen=True)
class RowTransform:
    """The user's function, its name in decisions, and how records that it rejects are handled."""

    function: Function
    name: str
    on_malformed: OnMalformed = field(default="fail", kw_only=True)


@dataclass(frozen=True)
class Transform(RowTransform):
    """A transform to topics. ``columns``: of its results."""

    columns: Columns


@dataclass(frozen=True, kw_only=True)
class RangePlan:
    """A query that reads ranges. ``written``: commits note the counts that they wrote here, for the source's metrics in
    the query's progress; ``cores``: of Spark when the query started, None where they are not known."""

    written: LastWritten = field(default=LastWritten())
    cores: int | None = None


@dataclass(frozen=True)
class FromTopics(RangePlan):
    """A plan that reads ranges of topics."""

    source: SourceOptions


@dataclass(frozen=True)
class ToTopics(RangePlan):
    """A plan that writes to topics."""

    sink: SinkOptions
    transform: Transform | None

    @property
    def columns(self) -> Columns:
        """Columns of the written rows, which differ from the columns of Spark's rows."""
        return COPY_COLUMNS if self.transform is None else self.transform.columns

    @property
    def aside(self) -> frozenset[str]:
        """Topics that tasks write records of their own to, beside the rows."""
        return frozenset()


@dataclass(frozen=True)
class CopyPlan(ToTopics, FromTopics):
    """A query from topics to topics. ``cluster``: the id of the source's cluster, empty where brokers do not report it;
    ``transform``: None to copy."""

    cluster: str

    def target(self, topic: str) -> str:
        """Return where the records of this topic are copied to: the option ``topic``, or a topic of the same name."""
        return self.sink.topic or topic
