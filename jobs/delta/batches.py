"""Micro-batches in a Delta table: each is committed once, and what is skipped has the rows that are there.

A commit holds the number of its micro-batch, under the query's application id, and Delta skips a change whose number
the table already has. The number says nothing about rows: a copy of a checkpoint that goes on beside the first one
counts on from the same number, over other rows. So each commit also holds a note of the offsets that its micro-batch
covers, and a micro-batch counts as done only where that note has the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import is_mark
from spark_eos.checkpoint.settings import HadoopSettings, of_session
from spark_eos.errors import stop
from spark_eos.pipelines.tables.delta.memory import NOTE
from spark_eos.pipelines.tables.delta.row_job import around, digest_of
from spark_eos.pipelines.tables.micro_batch import in_words, landed

from .errors import of_write
from .table import TXN_APP_ID, TXN_VERSION, Commit, State, Table, no_table, table_behind

_QUERY = "sql.streaming.queryId"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
#: What a commit has to hold, so that it can be looked at later.
_RECORDED = {
    "spark.databricks.delta.commitInfo.enabled": "true",
    "spark.databricks.delta.history.metricsEnabled": "true",
}
#: The key in a commit's ``userMetadata``, beside that of the note, of what the session sets there.
_THEIRS = "userMetadata"


@dataclass(frozen=True)
class Note:
    """What the commit of a micro-batch says about it. ``ranges``: ``topic/partition`` → first offset and end, of the
    partitions that have new ones. ``digest``: of all offsets before and after, and the topics' ids. ``counts``: of its
    rows. ``attempt`` is another one for each try, and shows whether a commit is its own. ``table``: the id of the table
    that the commit is meant for; None in notes of earlier versions."""

    batch: int
    digest: str
    ranges: Mapping[str, tuple[int, int]]
    counts: Mapping[str, int]
    attempt: str
    table: str | None = None

    @classmethod
    def of(cls, checkpoint: Checkpoint, batch: int, counts: Mapping[str, int], table: str | None = None) -> Self:
        """By the offset log, which is the same whenever the micro-batch is run again."""
        start, end = around(checkpoint, batch)
        ranges = {}
        for number, (first, last) in enumerate(zip(start, end, strict=True)):
            for topic in sorted(topic for topic in last if not is_mark(topic)):
                for partition, offset in sorted(last[topic].items()):
                    before = int(first.get(topic, {}).get(partition, 0))
                    place = f"{topic}/{partition}" + (f" (source {number + 1})" if number else "")
                    if before != offset:
                        ranges[place] = (before, int(offset))
        return cls(batch, digest_of(start, end), ranges, counts, uuid4().hex, table)

    @classmethod
    def read(cls, text: object) -> Self | None:
        """Of a commit's ``userMetadata``; None where there is none of this job."""
        try:
            raw = json.loads(str(text))[NOTE]
            ranges = {str(place): (int(first), int(end)) for place, (first, end) in raw["ranges"].items()}
            counts = {str(name): int(count) for name, count in raw["counts"].items()}
            table = None if raw.get("table") is None else str(raw["table"])
            return cls(int(raw["batch"]), str(raw["digest"]), ranges, counts, str(raw["attempt"]), table)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def text(self, theirs: str | None) -> str:
        """As ``userMetadata``, beside what the session sets there."""
        note = {NOTE: self.__dict__}
        return json.dumps(note if theirs is None else note | {_THEIRS: theirs}, separators=(",", ":"))

    def __str__(self) -> str:
        """Its first ranges."""
        return in_words(self.ranges)


@dataclass(frozen=True)
class Batches:
    """The micro-batches of a query in a table. ``application``, with ``{}`` for the query's id: under which they are
    committed."""

    path: str
    checkpoint: str
    application: str

    def once(
        self,
        spark: SparkSession,
        batch: int,
        write: Callable[[], object],
        counts: Callable[[], Mapping[str, int]] = dict,
        check: Callable[[Commit, Note, bool], None] = lambda commit, note, again: None,
    ) -> None:
        """``write`` the micro-batch in one change of the table, unless the table has it. ``counts`` are noted with it;
        ``check`` is given the commit that has it, what that notes, and whether the table had it before; it raises what
        is wrong with them.

        Raises TableError, CheckpointError, and Delta's errors by the job's names.
        """
        with _named_errors(self.path):
            check(*self._written(spark, batch, write, counts))

    def _written(
        self, spark: SparkSession, batch: int, write: Callable[[], object], counts: Callable[[], Mapping[str, int]]
    ) -> tuple[Commit, Note, bool]:
        """The commit, its note, and whether the table had it before."""
        table = Table(spark, self.path)
        query = _query_of(spark)
        application = self.application.format(query)
        before = table.state()
        if before is None:
            raise no_table(self.path, "It was there when the job started.")
        checkpoint = Checkpoint(self.checkpoint, HadoopSettings(of_session(spark)))
        last = before.transactions(application)
        if last is not None and last >= batch:
            note = Note.of(checkpoint, batch, {})
            if last > batch:
                cause = f"the table {self.path} has micro-batch {last}, and this job is at {batch}: {note}"
                raise stop("EOS_TABLE_TWO_QUERIES", cause=cause)
            commit = table.commit_of(application, last, newest=before.version)
            return *self._same_rows(query, before, commit, note), True
        if batch and last != batch - 1:
            raise table_behind(self.path, batch - 1, last)
        note = Note.of(checkpoint, batch, counts(), before.id)
        with _recorded(spark, application, note):
            write()
        after = table.state()
        is_same = after is not None and after.id == before.id
        if after is None or not (is_same or after.transactions(application) == batch):
            doing = f"micro-batch {batch} was written to it"
            raise stop("EOS_OTHER_TABLE.recreated", path=self.path, doing=doing)
        oldest = before.version + 1 if is_same else 0
        commit = table.commit_of(application, batch, newest=after.version, oldest=oldest)
        return *self._same_rows(query, after, commit, note), False

    def _same_rows(self, query: str, table: State, commit: Commit | None, note: Note) -> tuple[Commit, Note]:
        """The commit that has the micro-batch, and its note, which has the same offsets as this one, and was meant for
        this table."""
        there = Note.read(commit.user_metadata) if commit is not None else None
        if commit is None or there is None:
            raise stop(
                "EOS_DELTA_BATCH_UNKNOWN",
                path=self.path,
                batch=note.batch,
                what="is no longer in the log" if commit is None else "has no note of this job",
                note=note,
            )
        if there.table not in (None, table.id):
            raise landed(self.path, note.batch, table.id, query, by_spark=True)
        if there.digest != note.digest:
            cause = f"micro-batch {note.batch} in the table {self.path} has {there}, and here it has {note}"
            raise stop("EOS_TABLE_TWO_QUERIES", cause=cause)
        return commit, there


def _query_of(spark: SparkSession) -> str:
    """The id of the query whose micro-batch this thread works on."""
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
def _recorded(spark: SparkSession, application: str, note: Note) -> Iterator[None]:
    """Within, one change of a table is done if its log does not have this micro-batch yet, and is noted there. A second
    one would be skipped."""
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
