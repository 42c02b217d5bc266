"""A file of a table, as a task gets it, and as the range of a decision that it is."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.pipelines.tables.delta.source import SourceTable


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
        """The file as a range of a decision."""
        return OffsetRange(topic_of(table, at_first=self.at_first), self.version, self.number, self.number + 1)


def topic_of(table: SourceTable, *, at_first: bool) -> str:
    """What stands for a table's files in a decision."""
    topic = f"{table.id} changes" if table.changes else table.id
    return f"{topic} as it was" if at_first else topic
