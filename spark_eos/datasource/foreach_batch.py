"""Exactly-once writes within the function of foreachBatch."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from spark_eos.base.frozen_settings import texts
from spark_eos.errors import stop
from spark_eos.protocol.names import INGESTS
from spark_eos.spark.reasons import as_error
from spark_eos.spark.tracebacks import quiet_callbacks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

_QUERY, _RUN, _BATCH = "sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"


def batch_writer(df: DataFrame, batch_id: int, *, sink: str | None = None, query: str | None = None) -> DataFrameWriter:
    """Return a writer for a micro-batch's rows, or some of them, within the function of foreachBatch: set its options,
    and call ``save()``.

    Each write belongs to a sink of the query. ``sink`` names it, the same in every micro-batch; by default it is the
    option `topic`. A micro-batch may write to several sinks, and to each once: a replay writes nothing that is there.
    ``query`` names the query where Spark does not name it, as in Spark Connect: the same text for as long as the
    checkpoint is the same, and another one with a new checkpoint.

    Raises UnsupportedError if the query is not known, and OptionError for an empty name or an ingest's.
    """
    from spark_eos.options.values import parse_exact

    quiet_callbacks()
    options = {"foreachBatch.batch": str(batch_id)}
    known, run, batch = _here(df)
    if query is None and known is None:
        raise stop("EOS_USE_UNSUPPORTED.without_query")
    if query is None and batch != str(batch_id):
        raise stop("EOS_USE_UNSUPPORTED.other_batch", batch_id=batch_id, batch=batch)
    if query is not None and parse_exact("query", query).startswith(INGESTS):
        raise stop("EOS_OPTION_RESERVED.name", option="query", query=query)
    options |= {"foreachBatch.query": query or str(known), "foreachBatch.run": run or _own_run()}
    if sink is not None:
        options["foreachBatch.sink"] = sink
    return _noting(df.write).format("eos-kafka").mode("append").options(**options)


def _noting(writer: DataFrameWriter) -> DataFrameWriter:
    """Return a writer whose ``save()`` notes its own failure in the ledger.

    Sessions of Spark Connect have another class of writers, so that the writer's own is extended, whichever it is.
    """
    given: dict[str, str] = {}  # by names in lower case; Spark keeps the options for itself

    def keep(options: Mapping[str, object]) -> None:
        given.update((name.lower(), value) for name, value in texts(options).items())

    class NotingWriter(type(writer)):  # type: ignore[misc]  # a class that is only known now
        def option(self, key: str, value: object) -> DataFrameWriter:
            keep({key: value})
            super().option(key, value)
            return self

        def options(self, **options: object) -> DataFrameWriter:
            keep(options)
            super().options(**options)
            return self

        def save(self, path: str | None = None, *arguments: object, **options: object) -> None:
            """Like DataFrameWriter.save. A failure is noted before it is raised; an EosError comes without Spark's
            stacks."""
            from spark_eos.sink import unwritten

            keep(options)
            unwritten.check_earlier(given)
            try:
                super().save(path, *arguments, **options)
            except BaseException as error:
                ours = as_error(error)
                if ours is None or ours.condition != "EOS_SUPERSEDED":  # a new run would supersede the other one
                    _own_run.cache_clear()
                unwritten.note(given)
                if ours is None:
                    raise
                raise ours from None
            unwritten.forget(given)

    writer.__class__ = NotingWriter
    return writer


def _here(df: DataFrame) -> tuple[str | None, str | None, str | None]:
    """Return query, run and micro-batch, as Spark sets them in the thread that calls the function."""
    from pyspark.errors import PySparkException

    try:
        context = df.sparkSession.sparkContext
    except (AttributeError, PySparkException):  # in Spark Connect
        return None, None, None
    query, run, batch = (context.getLocalProperty(name) for name in (_QUERY, _RUN, _BATCH))
    return query, _as_run(run) if query is not None else None, batch


def _as_run(group: str | None) -> str | None:
    """Return the job group if it is an id, as Spark's are; the function may have set a group of its own."""
    try:
        return str(uuid.UUID(group))
    except (TypeError, ValueError):
        return None


@cache
def _own_run() -> str:
    """Return a run id for sessions that have none: the same until a write of this process fails, as Spark's abort then
    closes the run for good. Another process has another run."""
    return str(uuid.uuid4())
