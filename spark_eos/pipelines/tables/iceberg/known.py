"""An Iceberg table as its query knows it since it began: plain data, which travels to tasks without pyiceberg."""

from __future__ import annotations

from dataclasses import dataclass

from spark_eos.pipelines.tables.files import FileLayout
from spark_eos.pipelines.tables.iceberg.catalog import TableName


@dataclass(frozen=True)
class KnownTable:
    """``id``: the table's, which another one of its name does not have; ``folder``: where its files are, as its
    metadata has it; ``after_rollback``: the query's snapshot that a rollback has removed from the main branch, after
    which the query goes on."""

    name: TableName
    id: str
    layout: FileLayout
    folder: str
    after_rollback: int | None = None
