"""Commits a micro-batch's files to a Delta table exactly once, even if requests are lost or drivers are killed. See
`spark_eos.pipelines.tables.commit`.

- *Check and commit use one handle.* delta-rs detects a conflict only with commits after the version that the handle has
  read: a handle that was updated after another driver's commit would commit the micro-batch again. So each try opens
  the table, looks up the query's last micro-batch, and commits with that handle.
- *A commit says which table it is meant for.* If the table was recreated between look and commit, neither the store nor
  delta-rs can tell. The first try, with which most commits are done, has no retries of delta-rs: it becomes the next
  version, or fails. And behind each commit the table is opened once more. A commit that has landed in another table is
  taken back, and no start takes it for its own.
- *Every commit has the query's transaction*, even without files: delta-rs compares it when it rebases a commit on
  others that came first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from spark_eos.base import system
from spark_eos.base.log import logger
from spark_eos.base.whole_numbers import whole_number
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.tables.commit import FilesCommit
from spark_eos.pipelines.tables.delta.creation import RETENTION, retention_ms
from spark_eos.pipelines.tables.delta.memory import (
    check_meant,
    is_meant_for,
    note_of,
    remembered,
    transactions_of,
)
from spark_eos.pipelines.tables.delta.table import Location, Table, taken_back, without_secrets
from spark_eos.pipelines.tables.micro_batch import Remembered, landed

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

#: VACUUM removes files that are in no commit and older than the table's retention. Files have to be younger than the
#: retention divided by this number: the rest of the time is for wrong clocks and slow commits.
_SHARE = 4
#: The property with the number of micro-batches between two checkpoints of the log, and Delta's default.
_CHECKPOINT, _EACH = "delta.checkpointInterval", 10
#: Without that property, a checkpoint waits for one more version for each so many actions in the last one, but for no
#: more versions than these: it has the names of all files of the table, a version of a few.
_ACTIONS, _MOST = 1000, 100
#: The most versions of the table among which a RESTORE is looked for.
_MOST_VERSIONS = 10_000

#: How many versions of the log are read at once.
_AT_ONCE = 8
#: How often delta-rs rebases a commit on others that came first, its default, when the first try has failed: in a table
#: with many writers, no look might be the last word for long enough.
_RETRIES = 15


@dataclass(frozen=True)
class DeltaCommit(FilesCommit["DeltaTable"]):
    """The commit of one micro-batch. ``after_restore``: the version of a RESTORE that the user has allowed; ``added``:
    the files as actions of the log, the same ones in each try; ``tries``: counts these, as the first has no retries."""

    table: Table
    after_restore: int | None
    added: Sequence[AddAction]
    tries: Iterator[int] = field(default_factory=count, repr=False)
    removed_after = ", more than a quarter of 'delta.deletedFileRetentionDuration', after which VACUUM may remove it"

    @property
    def is_local(self) -> bool:
        return self.table.location.is_local

    def look(self) -> DeltaTable:
        from deltalake.exceptions import TableNotFoundError

        try:
            return self.table.location.open()
        except TableNotFoundError:
            at = f" at {self.path}, where it was when the query started"
            raise stop("EOS_DELTA_NO_TABLE.path", path=self.path, at=at) from None

    def remembered(self, handle: DeltaTable) -> Remembered:
        """See `FilesCommit.remembered`. Takes back this micro-batch where it is in another table."""
        query, number, path = self.batch.query, self.batch.number, self.path
        table = str(handle.metadata().id)
        memory = remembered(handle.transaction_version, query)
        if table != self.table.id and memory.last == number and is_meant_for(memory, self.table.id):
            raise self._taken_back(handle)
        check_meant(path, memory, table, query)
        if table != self.table.id:
            raise stop("EOS_OTHER_TABLE.recreated", path=path, doing=f"micro-batch {number} was written to it")
        return memory

    def _taken_back(self, handle: DeltaTable) -> EosError:
        """Remove the micro-batch from a table that it was not meant for, unless the table has a later commit. Returns
        the error for it."""
        newest, path, table = handle.version(), self.path, str(handle.metadata().id)
        query, number = self.batch.query, self.batch.number
        if _is_commit_of(_actions(self.table.location, newest), query, number) and taken_back(
            self.table.location, handle
        ):
            doing = (
                f"micro-batch {number} was committed to it: the commit, for the table with the id {self.table.id}, "
                f"became version {newest} of the one with the id {table}, and was taken back"
            )
            return stop("EOS_OTHER_TABLE.recreated", path=path, doing=doing)
        return landed(path, number, table, query)

    def check_table(self, handle: DeltaTable) -> None:
        self.table.check(handle)

    def check_kept(self, handle: DeltaTable, memory: Remembered) -> None:
        query, number = self.batch.query, self.batch.number
        check_restored(self.table.location, handle.version(), memory, query, number, self.after_restore)

    def most_hours(self, handle: DeltaTable) -> float:
        return retention_ms(handle.metadata().configuration.get(RETENTION)) / _SHARE / 3_600_000

    def has_file(self, handle: DeltaTable, path: str) -> bool:
        return self.table.location.has(path)

    def append(self, handle: DeltaTable) -> Callable[[], DeltaTable]:
        from deltalake import CommitProperties, PostCommitHookProperties, Transaction

        now_ms = int(system.time_of_day() * 1000)
        named = transactions_of(self.batch, handle.version(), self.table.id)
        transactions = [Transaction(name, number, now_ms) for name, number in named]
        metadata = {"isBlindAppend": True, "userMetadata": note_of(self.batch, self.rows)}
        handle.create_write_transaction(
            list(self.added),
            "append",
            handle.schema(),
            partition_by=list(self.table.partition_by) or None,
            commit_properties=CommitProperties(metadata, _RETRIES if next(self.tries) else 0, transactions),
            # A hook that fails would raise an error after a successful commit.
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )
        return self.look

    def tidy(self, after: DeltaTable) -> None:
        """Create a checkpoint of the log after every few micro-batches: without it, opening the table means to read the
        whole log. An error is only logged, as a missing checkpoint only makes the table slower."""
        properties, batch = after.metadata().configuration, self.batch
        try:
            each = int(properties.get(_CHECKPOINT) or _EACH)
            if batch.number % each == each - 1 and (_CHECKPOINT in properties or self._is_long(after.version())):
                after.create_checkpoint()
        except Exception as error:
            cause, name = without_secrets(error, self.table.location), f"query={batch.query} batch={batch.number}"
            logger.warning("%s: the checkpoint of the table's log could not be written: %s", name, cause)

    def _is_long(self, version: int) -> bool:
        """Return whether the log since its last checkpoint is long enough for another one. Raises OSError, ValueError
        and TypeError."""
        last = self.table.location.last_checkpoint()
        enough = min(max(_EACH, int(last.get("size", 0)) // _ACTIONS), _MOST)
        return version - int(last.get("version", -1)) >= enough


def _is_commit_of(actions: Iterable[Mapping[str, Any]] | None, query: str, batch: int | None) -> bool:
    """Return whether a version with these transactions is the commit of the query's micro-batch with this number."""
    done = (action.get("txn", {}) for action in actions or ())
    return any((each.get("appId"), each.get("version")) == (query, batch) for each in done)


def check_restored(
    location: Location, now: int, memory: Remembered, query: str, batch: int, after_restore: int | None
) -> None:
    """Check that the table, at version ``now``, was not restored to one before the query's last commit, which would
    have removed its rows. ``batch``: the micro-batch that is next. Raises TableError (EOS_OTHER_TABLE)."""
    if memory.read is None or now <= memory.read + 1:  # the only version since is that commit
        return
    committed = None
    # delta-rs's history has the newest versions, however old the handle is, under wrong numbers.
    oldest = max(memory.read, now - _MOST_VERSIONS, after_restore or 0) + 1
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for version, actions in enumerate(pool.map(partial(_actions, location), range(oldest, now + 1)), oldest):
            if any(_removes(each.get("commitInfo", {}), committed) for each in actions or ()):
                raise stop(
                    "EOS_OTHER_TABLE.restored",
                    batch=batch,
                    what=f"version {version} of the table {location.path} was a RESTORE since the query's last commit",
                    option="afterRestore",
                    value=version,
                )
            if _is_commit_of(actions, query, memory.last):
                committed = version


def _removes(commit: Mapping[str, Any], version: int | None) -> bool:
    """Return whether a commit is a RESTORE to a version before this one, or to one that is not known. ``version``: None
    where that is not known."""
    if commit.get("operation") != "RESTORE":
        return False
    to = whole_number(str(commit.get("operationParameters", {}).get("version")))
    return to is None or version is None or to < version


def _actions(location: Location, version: int) -> list[dict[str, Any]] | None:
    """Return the transactions and the ``commitInfo`` of a version; None where the log no longer has it. Raises
    OSError."""
    content = location.read(f"_delta_log/{version:020d}.json")
    if content is None:
        return None
    # Of bytes, as lines of text would end at further characters, such as U+2028, which JSON may have in strings.
    return [json.loads(line) for line in content.splitlines() if b'"txn"' in line or b'"commitInfo"' in line]
