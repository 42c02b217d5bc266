"""Changes tables of any kind exactly once: by the files of a micro-batch, or by columns.

- *Check and commit use one handle*, the table as it was read at one time. The commit is refused if anybody else has
  made a conflicting change since then.
- *An error does not tell the outcome.* The response to a successful commit may be lost, and the repeated request is
  then refused as a conflict. So after each error the table is read anew, and checked for the commit, before anything is
  tried again.
- *Nothing is deleted.* Files that were written for a commit that failed may be in the table after all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import pyarrow as pa

from spark_eos.base import failpoints, system
from spark_eos.base.log import logger
from spark_eos.base.retry import retrying
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.tables.evolution import added, in_words, widened
from spark_eos.pipelines.tables.files import DataFile
from spark_eos.pipelines.tables.micro_batch import RangeBatch, Remembered, behind, has

#: Seconds for which a commit is retried.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """Outcome of a commit. ``again``: the table already had the micro-batch, and the files were not committed;
    ``tries``: how many were needed."""

    again: bool
    tries: int


def until_known(
    once: Callable[[], bool],
    batch: RangeBatch | None,
    table: str,
    cause: Callable[[BaseException], str],
    patience_s: float = PATIENCE_S,
) -> Outcome:
    """Try to commit a micro-batch, or columns where there is none, until it is known that the table has it.

    ``once``: reads the table, and commits unless the table has it; returns whether it had it. An EosError ends the
    tries. ``cause``: describes any other error without secrets. Raises TableError (EOS_TABLE_UNCLEAR) where no try has
    succeeded for ``patience_s`` seconds.
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
        unclear = f"the table {table} has the new columns"
        raise stop("EOS_TABLE_UNCLEAR", path=table, seconds=patience_s, cause=last, what=unclear)
    unclear = f"micro-batch {batch.number} is in the table {table}"
    raise stop("EOS_TABLE_UNCLEAR", batch=batch.number, path=table, seconds=patience_s, cause=last, what=unclear)


#: A table as one look has read it.
H = TypeVar("H")


@dataclass(frozen=True)
class FilesCommit(ABC, Generic[H]):
    """The commit of one micro-batch's files. ``path``: the table, for messages; ``rows``: in all files; ``is_there``:
    the table had the micro-batch when the query started, so that tasks have written no files."""

    path: str
    batch: RangeBatch
    files: Sequence[DataFile]
    rows: int
    is_there: bool
    #: When a clean-up may remove files of this table that are in no commit, for the message about such files.
    removed_after: ClassVar[str]

    @property
    @abstractmethod
    def is_local(self) -> bool:
        """Return whether files are at a local path, which may be another folder on each host."""

    @abstractmethod
    def look(self) -> H:
        """Return the table as it is now. Raises TableError where there is none, and errors of its library."""

    @abstractmethod
    def remembered(self, handle: H) -> Remembered:
        """Return the table's memory of the query. Raises TableError where it is not the table that the query knows; if
        this micro-batch has landed there, it is taken back."""

    @abstractmethod
    def check_table(self, handle: H) -> None:
        """Check that the table can still take the files that tasks have written. Raises TableError."""

    @abstractmethod
    def check_kept(self, handle: H, memory: Remembered) -> None:
        """Check that no RESTORE or rollback has removed the query's last micro-batch. Raises TableError
        (EOS_OTHER_TABLE)."""

    @abstractmethod
    def most_hours(self, handle: H) -> float:
        """Return the hours for which no clean-up removes a file that is in no commit, less a reserve for wrong clocks
        and slow commits."""

    @abstractmethod
    def has_file(self, handle: H, path: str) -> bool:
        """Return whether the file exists, even if the table does not name it."""

    @abstractmethod
    def append(self, handle: H) -> Callable[[], H]:
        """Add the files, and the table's memory of the micro-batch, in one commit. Returns a function that reads the
        table after it. Raises the library's errors; then the outcome is unknown."""

    def tidy(self, after: H) -> None:
        """Look after the table, once the micro-batch is in it."""

    def once(self) -> bool:
        """Commit the micro-batch unless the table has it. Returns whether it had it.

        Raises TableError where the table was recreated or has other columns or rules, where its last micro-batch is not
        the one before this, after a RESTORE or rollback, and for files that are too old or gone. Raises errors of the
        table's library, too.
        """
        handle = self.look()
        memory = self.remembered(handle)
        self.check_table(handle)
        if has(self.path, memory, self.batch):
            return True
        if self.is_there:
            raise behind(self.path, self.batch.number, memory.last)
        self.check_kept(handle, memory)
        self.check_age(handle)
        failpoints.reach("table.asked")
        look_again = self.append(handle)
        failpoints.reach("table.committed")
        after = look_again()
        self.remembered(after)  # raises where the commit has landed in another table
        self.check_not_removed(handle)
        self.tidy(after)
        return False

    def check_age(self, handle: H) -> None:
        """Check that the files exist, and that no clean-up will remove them. Raises TableError
        (EOS_TABLE_FILES_OLD)."""
        oldest = self._oldest()
        if oldest is None:
            return
        hours = (system.time_of_day() - oldest.written_at_ms / 1000) / 3600
        if hours > self.most_hours(handle):
            batch, limit = self.batch.number, self.removed_after
            raise stop("EOS_TABLE_FILES_OLD.late", path=self.path, batch=batch, hours=hours, limit=limit)
        for file in self.files if self.is_local else [oldest]:
            if not self.has_file(handle, file.path):
                raise stop("EOS_TABLE_FILES_OLD.gone", path=self.path, batch=self.batch.number, file=file.path)

    def check_not_removed(self, handle: H) -> None:
        """Check after the commit that no clean-up has removed the files meanwhile. Raises TableError
        (EOS_TABLE_FILES_LOST)."""
        oldest = self._oldest()
        if oldest is not None and not self.has_file(handle, oldest.path):
            raise stop("EOS_TABLE_FILES_LOST", path=self.path, batch=self.batch.number, file=oldest.path)

    def _oldest(self) -> DataFile | None:
        """Return the file that a clean-up would remove first."""
        return min(self.files, key=lambda file: file.written_at_ms, default=None)


@dataclass(frozen=True)
class ColumnAddition(ABC, Generic[H]):
    """The commit by which a query that begins gives a table the columns of ``schema`` that it lacks. ``path``: the
    table, for messages."""

    path: str
    schema: pa.Schema

    @abstractmethod
    def look(self) -> H:
        """Return the table as it is now. Raises TableError where there is none, or another one, or one with rules that
        files would not follow; and errors of its library."""

    @abstractmethod
    def columns(self, handle: H) -> pa.Schema:
        """Return the table's columns."""

    @abstractmethod
    def differences(self, there: pa.Schema) -> list[str]:
        """Describe how these columns of a table differ from ``schema``."""

    @abstractmethod
    def add(self, handle: H, there: pa.Schema, wide: pa.Schema) -> None:
        """Add the columns of ``wide`` that ``there``, the table's columns, lacks, in a commit that has nothing else;
        reach the failpoint ``table.evolving`` just before. Raises TableError for columns that cannot be added, and
        errors of the library; then the outcome is unknown."""

    def once(self) -> bool:
        """Add the columns unless the table has them, also by another writer's commit. Returns whether it had them.
        Raises TableError (EOS_TABLE_DIFFERS) where it would have other columns afterwards."""
        handle = self.look()
        there = self.columns(handle)
        wide = widened(there, self.schema)
        if unlike := self.differences(wide):
            raise stop("EOS_TABLE_DIFFERS", path=self.path, differences="; ".join(unlike))
        new = in_words(path for path, _ in added(there, wide))
        if not new:
            return True
        self.add(handle, there, wide)
        logger.info("table=%s: added %s", self.path, new)
        failpoints.reach("table.evolved")
        return False
