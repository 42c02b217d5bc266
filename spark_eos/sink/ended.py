"""The last micro-batch of a query that has ended, looked at once more when a caller waits for the end.

After a commit, the process that has done it verifies the commit in the background, and the next commit waits for the
result. After the last one no commit follows, and Spark does not call the sink again.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from spark_eos.kafka.admin.topics import topic_partitions
from spark_eos.kafka.net.client import broker_client
from spark_eos.options.parse import SinkOptions, sink_options
from spark_eos.protocol.verify import verify_last
from spark_eos.sink.session import session_for

_FORMAT = "eos-kafka"

#: Run id and sink of the newest start, in this process, of queries whose plan does not have the sink's options, by
#: Spark's id of the query.
_started: dict[str, tuple[str, SinkOptions]] = {}


def remember(query: Any, options: SinkOptions) -> None:  # noqa: ANN401  # as below
    """Note where a query writes whose options Spark does not know."""
    _started[str(query.id)] = str(query.runId), options


def check_end(query: Any, *, stopped: bool) -> None:  # noqa: ANN401  # a StreamingQuery, or an object with its methods
    """Raise EosError as `verify_last` does, of the query's last micro-batch.

    Nothing is done for a query that writes elsewhere, within foreachBatch, or through Spark Connect, whose server
    knows the options alone.
    """
    run, started = _started.get(str(getattr(query, "id", None)), (None, None))
    options = started if run == str(getattr(query, "runId", None)) else _options_of(query)
    if options is None:
        return
    client = broker_client(options.kafka)
    partitions = topic_partitions(client, [options.ledger_topic])[options.ledger_topic]
    verify_last(session_for(client, options, partitions, str(query.id)).ports, _last_done(query), stopped=stopped)


def _last_done(query: Any) -> int | None:  # noqa: ANN401
    """Return the last micro-batch that this run has finished, as far as Spark remembers: it keeps its last 100
    triggers, including idle ones."""
    done = (progress["batchId"] for progress in query.recentProgress if "addBatch" in progress["durationMs"])
    return max(done, default=None)


def _options_of(query: Any) -> SinkOptions | None:  # noqa: ANN401
    """Return the sink's options in Spark's plan of the last micro-batch; None where there was none, or where it writes
    to another format."""
    try:
        written = query._jsq.streamingQuery().lastExecution().logical()  # noqa: SLF001  # PySpark has no API for this
        if written.table().name() != _FORMAT:
            return None
        spark: Any = SparkSession.active()  # or the default one, in a thread that has none
        options = spark._jvm.scala.jdk.javaapi.CollectionConverters.asJava(written.writeOptions())
        given = {str(name): str(options[name]) for name in options}
    except Exception:  # there was no micro-batch, or the query is one of Spark Connect
        return None
    return sink_options(given)
