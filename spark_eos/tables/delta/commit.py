"""The commit of a micro-batch's files to a Delta table, once, whatever becomes of a request or a driver.

What holds, and why:

- *Asked and committed on one handle.* A handle that was opened or updated after another driver's commit would commit
  the same micro-batch again: delta-rs refuses only what came after the version that the handle has read. So each try
  opens the table, asks it for the query's last micro-batch, and commits on what it has read.
- *Every error leaves the outcome open.* The reply to a commit that has landed may be lost, and a resend of it is then
  refused as somebody else's. So nothing is concluded from an error: the next try asks the table.
- *Every commit has the query's transaction*, also one without files: it is what delta-rs compares when it puts a
  commit behind others' that came first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_eos import failpoints, system
from spark_eos.errors import EosError, stop
from spark_eos.log import logger
from spark_eos.retry import retrying
from spark_eos.tables.delta.memory import MicroBatch, Remembered, Standing, behind, remembered, standing, was_ours
from spark_eos.tables.delta.table import Table, without_secrets

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

#: Seconds for which a commit is tried again.
PATIENCE_S = 60.0
_RETENTION = "delta.deletedFileRetentionDuration"
#: Delta's default for that property, a week.
_RETENTION_MS = 7 * 24 * 3600 * 1000
#: VACUUM removes files that no commit names and that are older than the table's retention. Files are committed up to
#: this share of it: the rest is for clocks that are off, and for a commit that takes long.
_SHARE = 4
_UNITS_MS = {"week": 604_800_000, "day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000}
_UNITS_MS |= {"millisecond": 1}
#: How many micro-batches lie between two checkpoints of the log, unless the table says otherwise; Delta's default.
_CHECKPOINT, _EACH = "delta.checkpointInterval", 10
#: Versions of others that are looked at for a RESTORE.
_MOST_VERSIONS = 10_000

#: The digest of a micro-batch as a job that wrote by Spark has noted it in its commit's ``userMetadata``; None where
#: that is no such note.
NotedDigest = Callable[[str], str | None]


@dataclass(frozen=True)
class TakenOver:
    """A query that wrote to this table by Spark before: how its commits note their offsets (`noted`), and what they
    would have noted for the micro-batch at hand (``digest``)."""

    noted: NotedDigest
    digest: Callable[[], str]


@dataclass(frozen=True)
class Outcome:
    """``version``: that the table had when it was asked; the commit is a later one. ``again``: the table had the
    micro-batch before, and none of these files is in it. ``tries``: how often it was asked."""

    version: int
    again: bool
    tries: int


def commit_files(
    table: Table,
    batch: MicroBatch,
    files: Sequence[AddAction],
    rows: int,
    *,
    is_there: bool = False,
    taken_over: TakenOver | None = None,
    after_restore: int | None = None,
    patience_s: float = PATIENCE_S,
) -> Outcome:
    """Commit the files of a micro-batch with ``rows`` rows together, unless the table has the micro-batch.

    ``is_there``: tasks have written nothing, because it had it when they were planned. ``after_restore``: the version
    of a RESTORE that the user knows of. Raises TableError: EOS_DELTA_UNCLEAR where the table could neither be asked nor
    committed to for ``patience_s`` seconds, and what `_Commit.once` raises.
    """
    attempt = _Commit(table, batch, files, rows, is_there, taken_over, after_restore)
    tries, error = 0, None
    for _ in retrying(patience_s):
        tries += 1
        try:
            again, version = attempt.once()
        except EosError:
            raise
        except Exception as raised:  # of delta-rs, which has no errors after which the outcome is known
            error = raised
            logger.info("%s: the commit is tried again after %s", attempt.name, without_secrets(raised, table.location))
            continue
        return Outcome(version, again, tries)
    assert error is not None
    cause = without_secrets(error, table.location)
    raise stop("EOS_DELTA_UNCLEAR", batch=batch.number, path=table.location.path, seconds=patience_s, cause=cause)


@dataclass(frozen=True)
class _Commit:
    table: Table
    batch: MicroBatch
    files: Sequence[AddAction]
    rows: int
    is_there: bool
    taken_over: TakenOver | None
    after_restore: int | None

    @property
    def name(self) -> str:
        return f"query={self.batch.query} batch={self.batch.number}"

    def once(self) -> tuple[bool, int]:
        """Ask the table and, if it lacks the micro-batch, commit. Whether it had it, and the version that was asked.

        Raises TableError where the table is another one or has another schema or rules, where its micro-batches do not
        fit this one, after a RESTORE, and for files that are too old or gone; and what delta-rs raises.
        """
        handle = self._opened()
        version = handle.version()
        self.table.check(handle, self.batch.number)
        found = remembered(handle.transaction_version, self.batch.query)
        path = self.table.location.path
        state = standing(path, found, self.batch)
        if state is Standing.UNCLEAR:
            self._look_in_the_log(handle)
        if state is not Standing.NEW:
            return True, version
        if self.is_there:
            raise behind(path, self.batch.number, found.last)
        self._check_restored(handle, found)
        self._check_age(handle)
        failpoints.reach("table.asked")
        self._commit(handle, version)
        failpoints.reach("table.committed")
        self._check_there()
        self._sum_up(handle.metadata().configuration)
        return False, version

    def _sum_up(self, properties: Mapping[str, str | None]) -> None:
        """After some micro-batches, sum up the log in a checkpoint: without one, each opening of the table would read
        all of it. A table without one is slower and nothing else, so an error is no reason to stop."""
        try:
            each = int(properties.get(_CHECKPOINT) or _EACH)
            if self.batch.number % each == each - 1:
                self._opened().create_checkpoint()
        except Exception as error:
            cause = without_secrets(error, self.table.location)
            logger.warning("%s: the table's log was not summed up in a checkpoint: %s", self.name, cause)

    def _opened(self) -> DeltaTable:
        from deltalake.exceptions import TableNotFoundError

        try:
            return self.table.location.open()
        except TableNotFoundError:
            path = self.table.location.path
            raise stop("EOS_DELTA_NO_TABLE.path", path=path, more=" It was there when the query started.") from None

    def _commit(self, handle: DeltaTable, version: int) -> None:
        from deltalake import CommitProperties, PostCommitHookProperties, Transaction

        now_ms = int(system.time_of_day() * 1000)
        transactions = [Transaction(name, number, now_ms) for name, number in self.batch.transactions(version)]
        metadata = {"isBlindAppend": True, "userMetadata": self.batch.note(self.rows)}
        handle.create_write_transaction(
            list(self.files),
            "append",
            handle.schema(),
            partition_by=list(self.table.partition_by) or None,
            commit_properties=CommitProperties(custom_metadata=metadata, app_transactions=transactions),
            # A hook that fails would raise after the commit has landed.
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )

    # What stops a commit

    def _look_in_the_log(self, handle: DeltaTable) -> None:
        """The table has a micro-batch of this number, and its digest is not there or another one: the commit itself
        must say that it has these offsets. Raises TableError."""
        path, batch = self.table.location.path, self.batch
        found = _commit_of(handle, self.table, batch)
        here = f"here it has {batch}"
        if found is not None and was_ours([each["appId"] for each in found.transactions], batch.query):
            cause = f"micro-batch {batch.number} in the table {path} has other offsets, and {here}"
            raise stop("EOS_DELTA_TWO_QUERIES", cause=cause)
        noted = None
        if found is not None and self.taken_over is not None:
            noted = self.taken_over.noted(str(found.info.get("userMetadata")))
        if noted is None or self.taken_over is None:
            what = "is no longer in the log" if found is None else "has no note of this job"
            raise stop("EOS_DELTA_BATCH_UNKNOWN", path=path, batch=batch.number, what=what, note=batch)
        if noted != self.taken_over.digest():
            cause = f"micro-batch {batch.number} was written to the table {path} with other offsets, and {here}"
            raise stop("EOS_DELTA_TWO_QUERIES", cause=cause)

    def _check_restored(self, handle: DeltaTable, found: Remembered) -> None:
        """Nobody has put the table back to an earlier version since this query's last commit, which would have taken
        rows of it. Raises TableError (EOS_DELTA_OTHER_TABLE)."""
        now = handle.version()
        if found.read is None or now <= found.read + 1:  # then the only version since is that commit
            return
        for info in handle.history(min(now - found.read, _MOST_VERSIONS)):
            restored = int(info["version"])
            known = self.after_restore is not None and restored <= self.after_restore
            if info.get("operation") == "RESTORE" and restored > found.read and not known:
                path, batch = self.table.location.path, self.batch.number
                raise stop("EOS_DELTA_OTHER_TABLE.restored", path=path, version=restored, batch=batch)

    def _check_age(self, handle: DeltaTable) -> None:
        """The files are there, and young enough to stay. Raises TableError (EOS_DELTA_FILES_OLD)."""
        oldest = self._oldest()
        if oldest is None:
            return
        path, batch = self.table.location.path, self.batch.number
        age_ms = system.time_of_day() * 1000 - oldest.modification_time
        if age_ms > retention_ms(handle.metadata().configuration.get(_RETENTION)) / _SHARE:
            raise stop("EOS_DELTA_FILES_OLD.late", path=path, batch=batch, hours=age_ms / 3_600_000)
        if not self._is_there(oldest):
            raise stop("EOS_DELTA_FILES_OLD.gone", path=path, batch=batch, file=oldest.path)

    def _check_there(self) -> None:
        """After the commit: no VACUUM came between, nor was the table recreated. Raises TableError
        (EOS_DELTA_FILES_LOST, EOS_DELTA_OTHER_TABLE)."""
        oldest = self._oldest()
        if oldest is not None and not self._is_there(oldest):
            self.table.check(self._opened(), self.batch.number)
            path, batch = self.table.location.path, self.batch.number
            raise stop("EOS_DELTA_FILES_LOST", path=path, batch=batch, file=oldest.path)

    def _oldest(self) -> AddAction | None:
        """The file that VACUUM would remove first."""
        return min(self.files, key=lambda file: file.modification_time, default=None)

    def _is_there(self, file: AddAction) -> bool:
        """Whether the file exists, asked of its store."""
        return self.table.location.has(file.path)


def retention_ms(text: str | None) -> int:
    """The milliseconds of a property such as ``interval 1 week 2 days``; Delta's default where there is none, and 0,
    for which no file is young enough, where it cannot be read."""
    if text is None:
        return _RETENTION_MS
    parts = re.findall(r"(\d+)\s+([a-z]+?)s?\b", text.lower().removeprefix("interval"))
    if not parts or any(unit not in _UNITS_MS for _, unit in parts):
        return 0
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)


@dataclass(frozen=True)
class _Found:
    """A commit in a table's log: its ``commitInfo``, and its transactions."""

    info: dict[str, Any]
    transactions: list[dict[str, Any]]


def _commit_of(handle: DeltaTable, table: Table, batch: MicroBatch) -> _Found | None:
    """The newest commit that has this micro-batch by its number; None where the log does not have it any more."""
    for version in range(handle.version(), -1, -1):
        content = table.location.read(f"_delta_log/{version:020d}.json")
        if content is None:
            return None
        text = content.decode()
        actions = [json.loads(line) for line in text.splitlines() if '"txn"' in line or '"commitInfo"' in line]
        done = [action["txn"] for action in actions if "txn" in action]
        if any(each["appId"] == batch.query and each["version"] == batch.number for each in done):
            return _Found(next((each["commitInfo"] for each in actions if "commitInfo" in each), {}), done)
    return None
