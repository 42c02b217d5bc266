"""A copy, as it travels to Spark's Python processes: with its data source, never as an option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from spark_eos.copy.written import LastWritten
from spark_eos.options.parse import SinkOptions, SourceOptions
from spark_eos.sink.schema import Columns

Function = Callable[[pa.RecordBatch], object]

#: The rule of copies by which a record goes to the partition of the same number.
SAME = "same"

#: What a query copies, as whole records.
COPY_COLUMNS = Columns(key=True, topic=False, partition=True, headers=True, timestamp=True)


@dataclass(frozen=True)
class Transform:
    """The user's function, the name by which a decision knows it, and the columns that it returns."""

    function: Function
    name: str
    columns: Columns


@dataclass(frozen=True)
class CopyPlan:
    """What is copied, where to, and how.

    ``cluster``: the id of the source's cluster; empty where brokers do not report it. ``transform``: None to copy.
    ``ordered``: the rows of a source partition keep their order. ``written``: where commits note what they wrote.
    """

    source: SourceOptions
    sink: SinkOptions
    cluster: str
    transform: Transform | None
    ordered: bool = True
    written: LastWritten = field(default=LastWritten(), kw_only=True)

    @property
    def transform_name(self) -> str | None:
        """The name that the decision records; None for copies."""
        return None if self.transform is None else self.transform.name

    @property
    def aside(self) -> frozenset[str]:
        """Topics that tasks write records of their own to, beside the rows."""
        return frozenset()

    @property
    def columns(self) -> Columns:
        """The columns of the rows that are written; what Spark has as rows are ranges."""
        return COPY_COLUMNS if self.transform is None else self.transform.columns

    def target(self, topic: str) -> str:
        """Where the records of this topic are copied to: the option ``topic``, or a topic of the same name."""
        return self.sink.topic or topic
