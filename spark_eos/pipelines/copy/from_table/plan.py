"""A query from a table to topics: its files, and their representation in a decision.

In a decision, a file is a range of one offset: the table's id as the topic, the version as the partition, and the
file's number as the offset. Files that the table had when the query began have a topic of their own, and so have files
of changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.pipelines.copy.from_table.planning import Limits
from spark_eos.pipelines.copy.plan import ToTopics, Transform
from spark_eos.pipelines.tables.delta.source import SourceTable
from spark_eos.spi import HadoopSettings


@dataclass(frozen=True)
class TableFile:
    """A file and where it stands: its ``number`` among the files of its ``version``; ``at_first``: see
    `spark_eos.pipelines.copy.from_table.planning.FilesOfVersion`. The others: see
    `spark_eos.pipelines.tables.delta.versions.FILES`."""

    version: int
    at_first: bool
    number: int
    path: str = field(compare=False)
    size: int = field(compare=False)
    partition: str = field(compare=False)
    kind: str = field(compare=False)

    def range(self, table: SourceTable) -> OffsetRange:
        """Return the file as a range of a decision."""
        return OffsetRange(topic_of(table, at_first=self.at_first), self.version, self.number, self.number + 1)


def topic_of(table: SourceTable, *, at_first: bool) -> str:
    """Return the topic that represents a table's files in a decision."""
    topic = f"{table.id} changes" if table.changes else table.id
    return f"{topic} as it was" if at_first else topic


@dataclass(frozen=True)
class FromTablePlan(ToTopics):
    """A query from a table to topics.

    ``starting_version``: the first version whose files a new query reads; None for the table as it is. ``tasks``: the
    most that a micro-batch has. ``storage``: Hadoop's settings of file systems, by which tasks read files.
    """

    table: SourceTable
    starting_version: int | None
    limits: Limits
    tasks: int
    storage: HadoopSettings
    transform: Transform
