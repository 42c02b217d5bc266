"""What a query needs of the table that it writes to, whatever kind of table that is.

=================  ===================================================================================
`Place`            where a table is or will be: on the driver, when a query starts
`Target`           the table, as its query knows it from then on: on the driver, and in tasks
=================  ===================================================================================

`spark_eos.pipelines.tables.delta.target` and `spark_eos.pipelines.tables.iceberg.target` have both for their kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from spark_eos.base.log import logger
from spark_eos.base.retry import retrying
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.tables.files import DataFile, FileLayout
from spark_eos.pipelines.tables.keys import Key
from spark_eos.pipelines.tables.micro_batch import MicroBatch, Remembered
from spark_eos.spi import Store

#: Seconds for which a commit is retried.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """``again``: the table already had the micro-batch, and the files were not committed; ``tries``: how many were
    needed."""

    again: bool
    tries: int


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table. ``partition_by``: those whose values are texts in the table, and in none of its files;
    ``keys``: its partitions, if they are computed from columns."""

    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()


class Target(Protocol):
    """A table. Tasks get it with the plan."""

    @property
    def name(self) -> str:
        """The table's, for messages and the log."""

    @property
    def layout(self) -> FileLayout:
        """How its files are written."""

    def for_tasks(self) -> Target:
        """On the driver, for the tasks of one micro-batch: the table with credentials that are valid now. Raises
        TableError."""

    def store(self) -> Store:
        """Where its files are written. Raises what the store raises."""

    def cause(self, error: BaseException) -> str:
        """An error of the store in one line, without secrets."""

    def last(self, query: str) -> int | None:
        """The query's last micro-batch in the table; None without one. Raises TableError."""

    def commit(self, batch: MicroBatch, files: Sequence[DataFile], rows: int, *, is_there: bool) -> Outcome:
        """Commit a micro-batch's files together, unless the table has the micro-batch. ``rows``: in all files;
        ``is_there``: the table had the micro-batch when the query started, so that tasks have written no files. Raises
        TableError, EOS_TABLE_UNCLEAR where the outcome stays unknown."""

    def evolved(self, schema: pa.Schema) -> Target:
        """On the driver: the table with these columns, of which those that it lacks were added by a commit of their own
        (`Place.widened`). Raises TableError where it then has others, and EOS_TABLE_UNCLEAR where the outcome stays
        unknown."""


class Place(Protocol):
    """Where a table is or will be."""

    @property
    def name(self) -> str:
        """The table's, for messages."""

    def columns(self) -> TableColumns | None:
        """The columns of the table; None where there is none. Raises TableError."""

    def remembered(self, query: str) -> Remembered:
        """What the table has of a query. Raises TableError, also where there is no table."""

    def check_kept(self, query: str, batch: int) -> None:
        """Before the commit of a micro-batch: no RESTORE or rollback has removed the query's last one. Raises
        TableError (EOS_OTHER_TABLE)."""

    def new_columns(self, schema: pa.Schema) -> TableColumns:
        """The columns of a table that is created for rows with these. Raises SchemaError."""

    def check_new(self, schema: pa.Schema | None) -> None:
        """Check that a table can be created here for rows with these columns, where there is none. None: they are not
        known yet. Writes nothing. Raises TableError and SchemaError."""

    def widened(self, there: pa.Schema, given: pa.Schema) -> pa.Schema:
        """The table's columns ``there``, with those that rows with the columns ``given`` have besides. Raises
        SchemaError for one that cannot be added."""

    def target(self, schema: pa.Schema, *, create: bool) -> Target:
        """The table, with exactly these columns. Where there is none, it is created if ``create``. Raises TableError
        and SchemaError."""


@contextmanager
def stored(table: Target) -> Iterator[None]:
    """In a task, around what writes files. Raises TableError (EOS_TABLE_STORE) for what the store raises within."""
    try:
        yield
    except OSError as error:
        raise stop("EOS_TABLE_STORE", path=table.name, cause=table.cause(error)) from None


def until_known(
    once: Callable[[], bool],
    batch: MicroBatch | None,
    table: str,
    cause: Callable[[BaseException], str],
    patience_s: float = PATIENCE_S,
) -> Outcome:
    """Try to commit a micro-batch, or columns where there is none, until it is known that the table has it.

    ``once``: looks into the table, and commits unless the table has it; returns whether it had it. An EosError
    ends the tries. No other error tells the outcome, as the response to a successful commit may be lost: so the next
    try looks into the table again. ``cause``: such an error in words without secrets. Raises TableError
    (EOS_TABLE_UNCLEAR) where no try has succeeded for ``patience_s`` seconds.
    """
    error = None
    what = "columns" if batch is None else f"query={batch.query} batch={batch.number}"
    for tries, _ in enumerate(retrying(patience_s), 1):
        try:
            return Outcome(once(), tries)
        except EosError:
            raise
        except Exception as raised:
            error = raised
            logger.info("%s: the commit is tried again after %s", what, cause(raised))
    assert error is not None
    last = cause(error)
    if batch is None:
        raise stop(
            "EOS_TABLE_UNCLEAR",
            path=table,
            seconds=patience_s,
            cause=last,
            what=f"the table {table} has the new columns",
        )
    raise stop(
        "EOS_TABLE_UNCLEAR",
        batch=batch.number,
        path=table,
        seconds=patience_s,
        cause=last,
        what=f"micro-batch {batch.number} is in the table {table}",
    )
