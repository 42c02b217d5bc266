"""Options of batch writes (``df.write``), also within foreachBatch. Raises OptionError."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_eos.errors import EosError, missing_option, stop
from spark_eos.options.parse import SinkOptions, check_ledger_is_apart, parse_table, refuse_path
from spark_eos.options.table import SINK, SINK_OWNED, Option
from spark_eos.options.values import parse_batch, parse_exact, parse_text
from spark_eos.protocol.head import BatchWrite, ForeachBatchWrite, Write
from spark_eos.protocol.names import INGESTS

#: Options of the sink that a batch write has, too. The others are about a checkpoint, which it has none of.
_OF_WRITES = frozenset(["topic", "dead_letters", "prefix", "transaction_timeout_ms", "two_phase", "ledger_topic"])
#: Options of ``df.write``.
WRITE = (
    *(option for option in SINK if option.attribute in _OF_WRITES),
    Option(
        "job.id",
        "job_id",
        parse_text,
        "(a new one)",
        "Names the rows of a batch write, so that it can be [run again](batch.md): rows that are there are not written "
        "a second time, and an unfinished run is finished.",
    ),
)

#: Options that `spark_eos.batch_writer` adds, to identify the write and its micro-batch.
FOREACH_BATCH = (
    Option("foreachBatch.query", "query", parse_exact, "", ""),
    Option("foreachBatch.run", "run", parse_text, "", ""),
    Option("foreachBatch.batch", "batch", parse_batch, "", ""),
    Option("foreachBatch.sink", "sink_name", parse_exact, "", ""),
)


@dataclass(frozen=True)
class WriteOptions:
    """Parsed options of ``df.write``. ``write``: None for a batch write that its user has not named.

    Within foreachBatch, ``run`` and ``batch`` identify the query's run and micro-batch.
    """

    sink: SinkOptions
    write: Write | None = None
    run: str | None = None
    batch: int = 0


def write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Parse and check a user's options of ``df.write``. Raises OptionError."""
    values, options = _parsed(raw)
    job_id = values.pop("job_id", None)
    if values and not {"query", "run", "batch"} <= values.keys():
        name = next(option.name for option in FOREACH_BATCH if option.attribute in values)
        raise stop("EOS_OPTION_UNSUPPORTED.remove", option=name, why="spark_eos.batch_writer sets it", instead="")
    if values and job_id is not None:
        raise _job_id_refused("a write of spark_eos.batch_writer is named by its query, its micro-batch and its sink")
    if values:
        return _within(options, **values)
    if options.two_phase and job_id is None:
        raise missing_option(
            "job.id",
            "'transaction.two.phase.commit' is true",
            "a name: if this write dies, only a second run under it ends its transactions, as they never expire",
        )
    return WriteOptions(options, None if job_id is None else BatchWrite(job_id, options.topic))


def own_query(name: str, topic: str) -> ForeachBatchWrite:
    """Return how the ledger knows a query of this name that a program writes itself, into one topic: as a sink within
    foreachBatch."""
    return ForeachBatchWrite(INGESTS + name, topic)


def own_write(raw: Mapping[str, str], write: ForeachBatchWrite, run: str, batch: int) -> WriteOptions:
    """Parse the options of a micro-batch that a program writes itself. Raises OptionError."""
    values, options = _parsed(raw)
    if "job_id" in values:
        raise _job_id_refused("a query that a program writes itself, as an ingest does, is named by its name and topic")
    return WriteOptions(options, write, run, batch)


def _job_id_refused(why: str) -> EosError:
    return stop("EOS_OPTION_CONFLICT.remove", option="job.id", given="set", why=why)


def _parsed(raw: Mapping[str, str]) -> tuple[dict[str, Any], SinkOptions]:
    """Return the values of the options that only writes have, and the sink's options."""
    refuse_path(raw)
    streaming = {option.name.lower(): option.name for option in SINK if option not in WRITE}
    for key in raw:
        if key.lower() in streaming:
            raise stop(
                "EOS_OPTION_UNSUPPORTED.remove",
                option=streaming[key.lower()],
                why="a batch write has no checkpoint",
                instead=". 'job.id' makes a batch write repeatable; df.writeStream commits offsets to a group",
            )
    values, kafka = parse_table(raw, (*WRITE, *FOREACH_BATCH), SINK_OWNED, ignored=("path",))
    own = {name: values.pop(name) for name in [*values] if name not in _OF_WRITES}
    options = SinkOptions(kafka=kafka, **values)
    check_ledger_is_apart(options)
    return own, options


def _within(options: SinkOptions, query: str, run: str, batch: int, sink_name: str | None = None) -> WriteOptions:
    name = sink_name or options.topic
    if name is None:
        raise missing_option(
            "sink",
            "a write of spark_eos.batch_writer needs it, or the option 'topic'",
            'the same name in every micro-batch: spark_eos.batch_writer(df, batch_id, sink="…")',
        )
    return WriteOptions(options, ForeachBatchWrite(query, name), run, batch)
