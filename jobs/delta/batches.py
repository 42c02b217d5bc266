"""Micro-batches that are merged into a Delta table: each is committed once, and one that is skipped has the rows that
are there.

A commit holds the number of its micro-batch, under the query's application id, and Delta skips a change whose number
the table already has. The number says nothing about rows: a copy of a checkpoint that goes on beside the first one
counts on from the same number, over other rows. So each commit also holds a note of the offsets that its micro-batch
covers, and a micro-batch counts as done only where that note has the same ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import IDS, is_mark
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import stop
from spark_eos.pipelines.tables.delta.memory import MERGES, NOTE
from spark_eos.pipelines.tables.micro_batch import behind, in_words, landed

from .errors import of_write
from .table import TXN_APP_ID, TXN_VERSION, MergedTable, TableCommit, TableVersion, no_table

_QUERY = "sql.streaming.queryId"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
#: Session settings by which Delta records commits and their metrics, so that they can be read later.
_RECORDED = {
    "spark.databricks.delta.commitInfo.enabled": "true",
    "spark.databricks.delta.history.metricsEnabled": "true",
}
#: The key in a commit's ``userMetadata``, beside the note's, for the value that the session sets.
_THEIRS = "userMetadata"
#: Spark's line for a source that has had no offset.
_NOTHING_YET = "-"

#: The line of each source in the offset log: end offsets by topic and partition, and marks whose names begin with #.
Logged = list[dict[str, Any]]


def logged(checkpoint: Checkpoint, batch: int) -> Logged:
    """Return the lines of the sources in the offset log of a micro-batch. Raises CheckpointError."""
    try:
        sources = [{} if line == _NOTHING_YET else json.loads(line) for line in checkpoint.sources(batch)]
    except (ValueError, RecursionError):
        sources = []
    if not sources or not all(isinstance(source, dict) for source in sources):
        raise checkpoint.damaged(f"offsets/{batch}", "it does not have the offsets of each source")
    return sources


def _digest_of(start: Logged, end: Logged) -> str:
    """Return a digest of the topics' ids and the offsets; other marks do not change it."""
    known: Iterable[Mapping[str, Any]] = [
        {name: value for name, value in source.items() if not is_mark(name) or name == IDS} for source in (*start, *end)
    ]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class BatchNote:
    """Note of a micro-batch in its commit. ``ranges``: ``topic/partition`` → first offset and end, of the
    partitions that have new ones. ``digest``: of all offsets before and after, and the topics' ids. ``counts``: of its
    rows. ``attempt`` is another one for each try, and shows whether a commit is its own. ``table``: the id of the table
    that the commit is meant for."""

    batch: int
    digest: str
    ranges: Mapping[str, tuple[int, int]]
    counts: Mapping[str, int]
    attempt: str
    table: str

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, batch: int, counts: Mapping[str, int], table: str) -> Self:
        """Make the note by the offset log, which is the same whenever the micro-batch is run again."""
        end = logged(checkpoint, batch)
        start = logged(checkpoint, batch - 1) if batch else [{} for _ in end]
        ranges = {}
        for number, (first, last) in enumerate(zip(start, end, strict=True)):
            for topic in sorted(topic for topic in last if not is_mark(topic)):
                for partition, offset in sorted(last[topic].items()):
                    before = int(first.get(topic, {}).get(partition, 0))
                    key = f"{topic}/{partition}" + (f" (source {number + 1})" if number else "")
                    if before != offset:
                        ranges[key] = (before, int(offset))
        return cls(batch, _digest_of(start, end), ranges, counts, uuid4().hex, table)

    @classmethod
    def read(cls, text: object) -> Self | None:
        """Parse a commit's ``userMetadata``; None if it is not this job's."""
        try:
            raw = json.loads(str(text))[NOTE]
            ranges = {str(partition): (int(first), int(end)) for partition, (first, end) in raw["ranges"].items()}
            counts = {str(name): int(count) for name, count in raw["counts"].items()}
            return cls(int(raw["batch"]), str(raw["digest"]), ranges, counts, str(raw["attempt"]), str(raw["table"]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def text(self, theirs: str | None) -> str:
        """Return the note as ``userMetadata``, beside the session's own."""
        note = {NOTE: self.__dict__}
        return json.dumps(note if theirs is None else note | {_THEIRS: theirs}, separators=(",", ":"))

    def __str__(self) -> str:
        """Return the first ranges."""
        return in_words(self.ranges)


@dataclass(frozen=True)
class Batches:
    """The micro-batches of a query in the table at ``path``."""

    path: str
    checkpoint: str

    def once(
        self,
        spark: SparkSession,
        batch: int,
        write: Callable[[], object],
        counts: Callable[[], Mapping[str, int]],
        check: Callable[[TableCommit, BatchNote, bool], None],
    ) -> None:
        """Run ``write``, which adds the micro-batch in one change of the table, unless the table has it. ``counts`` are
        noted with it; ``check`` is given the commit that has it, its note, and whether the table had it before; it
        raises an error where they do not fit.

        Raises TableError, CheckpointError, and Delta's errors by the job's names.
        """
        with _named_errors(self.path):
            check(*self._written(spark, batch, write, counts))

    def _written(
        self, spark: SparkSession, batch: int, write: Callable[[], object], counts: Callable[[], Mapping[str, int]]
    ) -> tuple[TableCommit, BatchNote, bool]:
        """Return the commit, its note, and whether the table had it before."""
        table = MergedTable(spark, self.path)
        query = _query_of(spark)
        application = MERGES.format(query)
        before = table.state()
        if before is None:
            raise no_table(self.path, ", where it was when the job started")
        checkpoint = Checkpoint(self.checkpoint, HadoopSettings.from_session(spark))
        last = before.last_batch(application)
        if last is not None and last >= batch:
            note = BatchNote.from_checkpoint(checkpoint, batch, {}, before.id)
            if last > batch:
                cause = f"the table {self.path} has micro-batch {last}, and this job is at {batch}: {note}"
                raise stop("EOS_TABLE_TWO_QUERIES", cause=cause)
            commit = table.commit_of(application, last, newest=before.version)
            return *self._same_rows(query, before, commit, note), True
        if batch and last != batch - 1:
            raise behind(self.path, batch - 1, last)
        note = BatchNote.from_checkpoint(checkpoint, batch, counts(), before.id)
        with _recorded(spark, application, note):
            write()
        after = table.state()
        is_same = after is not None and after.id == before.id
        if after is None or not (is_same or after.last_batch(application) == batch):
            doing = f"micro-batch {batch} was written to it"
            raise stop("EOS_OTHER_TABLE.recreated", path=self.path, doing=doing)
        oldest = before.version + 1 if is_same else 0
        commit = table.commit_of(application, batch, newest=after.version, oldest=oldest)
        return *self._same_rows(query, after, commit, note), False

    def _same_rows(
        self, query: str, table: TableVersion, commit: TableCommit | None, note: BatchNote
    ) -> tuple[TableCommit, BatchNote]:
        """Return the commit that has the micro-batch, and its note, which has the same offsets as this one, and was
        meant for this table."""
        there = BatchNote.read(commit.user_metadata) if commit is not None else None
        if commit is None or there is None:
            raise stop(
                "EOS_DELTA_BATCH_UNKNOWN",
                path=self.path,
                batch=note.batch,
                what="is no longer in the log" if commit is None else "has no note of this job",
                note=note,
            )
        if there.table != table.id:
            raise landed(self.path, note.batch, table.id, query, by_spark=True)
        if there.digest != note.digest:
            cause = f"micro-batch {note.batch} has {there} in the table {self.path}, and {note} in this run"
            raise stop("EOS_TABLE_TWO_QUERIES", cause=cause)
        return commit, there


def _query_of(spark: SparkSession) -> str:
    """Return the id of the query whose micro-batch this thread works on."""
    query = spark.sparkContext.getLocalProperty(_QUERY)
    if query is None:
        raise stop("EOS_DELTA_WITHOUT_QUERY")
    return query


@contextmanager
def _named_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        named = of_write(error, path)
        if named is None:
            raise
        # Spark passes on the text of the whole chain, in which a cause comes first, and hides the error.
        raise named from None


@contextmanager
def _recorded(spark: SparkSession, application: str, note: BatchNote) -> Iterator[None]:
    """Let one change of a table within the block be done only if its log does not have this micro-batch yet, and be
    noted there. A second change would be skipped."""
    before: dict[str, Any] = {name: spark.conf.get(name, None) for name in (*_RECORDED, _USER_METADATA)}
    settings = {
        TXN_APP_ID: application,
        TXN_VERSION: str(note.batch),
        _USER_METADATA: note.text(before[_USER_METADATA]),
    }
    try:
        for name, value in (settings | _RECORDED).items():
            spark.conf.set(name, value)
        yield
    finally:
        for name in settings | _RECORDED:
            if before.get(name) is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, before[name])
