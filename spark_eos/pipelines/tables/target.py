"""The port to a table, of any kind, that a query writes to.

=================  ===================================================================================
`TableReference`   where a table is or will be: on the driver, when a query starts
`Target`           the table, as its query knows it from then on: on the driver, and in tasks
=================  ===================================================================================

`spark_eos.pipelines.tables.delta.target` and `spark_eos.pipelines.tables.iceberg.target` have both for their kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pyarrow as pa

from spark_eos.errors import stop
from spark_eos.pipelines.tables.commit import PATIENCE_S, ColumnAddition, FilesCommit, Outcome, until_known
from spark_eos.pipelines.tables.files import DataFile, FileLayout
from spark_eos.pipelines.tables.keys import Key
from spark_eos.pipelines.tables.micro_batch import RangeBatch, Remembered
from spark_eos.spi import Store


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table. ``partition_by``: columns whose values are texts in the table's metadata, and not in its
    files; ``keys``: its partitions, if they are computed from columns."""

    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()


class Target(ABC):
    """A table. Tasks get it with the plan."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The table's, for messages and the log."""

    @property
    @abstractmethod
    def layout(self) -> FileLayout:
        """How its files are written."""

    def for_tasks(self) -> Target:
        """Return the table with credentials that are valid now, on the driver, for the tasks of one micro-batch. Raises
        TableError."""
        return self

    @abstractmethod
    def store(self) -> Store:
        """Return where its files are written. Raises the store's errors."""

    @abstractmethod
    def cause(self, error: BaseException) -> str:
        """Return an error of the store or the table's library in one line, without secrets."""

    @abstractmethod
    def files_commit(self, batch: RangeBatch, files: Sequence[DataFile], rows: int, is_there: bool) -> FilesCommit[Any]:
        """Return the commit of this kind of table. See `commit`."""

    @abstractmethod
    def column_addition(self, schema: pa.Schema) -> ColumnAddition[Any]:
        """Return the commit that adds columns. See `evolved`."""

    @abstractmethod
    def with_columns(self, schema: pa.Schema) -> Self:
        """Return the table as it is now. Raises TableError (EOS_TABLE_DIFFERS) where it has not exactly these
        columns."""

    def commit(
        self,
        batch: RangeBatch,
        files: Sequence[DataFile],
        rows: int,
        *,
        is_there: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> Outcome:
        """Commit a micro-batch's files together, unless the table has the micro-batch. ``rows``: in all files;
        ``is_there``: the table had the micro-batch when the query started, so that tasks have written no files. Raises
        TableError, EOS_TABLE_UNCLEAR where no try has succeeded for ``patience_s`` seconds."""
        once = self.files_commit(batch, files, rows, is_there).once
        return until_known(once, batch, self.name, self.cause, patience_s)

    def evolved(self, schema: pa.Schema, *, patience_s: float = PATIENCE_S) -> Self:
        """Add the columns that the table lacks by a commit of their own (`TableReference.widened`), on the driver, and
        return the table with exactly these columns. Raises TableError where it then has others, and EOS_TABLE_UNCLEAR
        as `commit`."""
        until_known(self.column_addition(schema).once, None, self.name, self.cause, patience_s)
        return self.with_columns(schema)


class TableReference(Protocol):
    """Where a table is or will be."""

    @property
    def name(self) -> str:
        """The table's, for messages."""

    def columns(self) -> TableColumns | None:
        """Return the columns of the table; None where there is none. Raises TableError."""

    def remembered(self, query: str) -> Remembered:
        """Return the table's memory of a query. Raises TableError, also where there is no table."""

    def check_kept(self, query: str, batch: int) -> None:
        """Check, before the commit of a micro-batch, that no RESTORE or rollback has removed the query's last one.
        Raises TableError (EOS_OTHER_TABLE)."""

    def new_columns(self, schema: pa.Schema) -> TableColumns:
        """Return the columns of a table that is created for rows with these. Raises SchemaError."""

    def check_new(self, schema: pa.Schema | None) -> None:
        """Check that a table can be created here for rows with these columns, where there is none. None: they are not
        known yet. Writes nothing. Raises TableError and SchemaError."""

    def widened(self, there: pa.Schema, given: pa.Schema) -> pa.Schema:
        """Return the table's columns ``there``, followed by the other columns of ``given``, which are the rows'. Raises
        SchemaError for a column that cannot be added."""

    def target(self, schema: pa.Schema, *, create: bool) -> Target:
        """Return the table, with exactly these columns. Where there is none, it is created if ``create``. Raises
        TableError and SchemaError."""


@contextmanager
def stored(table: Target) -> Iterator[None]:
    """Turn errors of the store within the block, in which a task writes files, into TableError (EOS_TABLE_STORE)."""
    try:
        yield
    except OSError as error:
        raise stop("EOS_TABLE_STORE", path=table.name, cause=table.cause(error)) from None
