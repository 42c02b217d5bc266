"""Options of batch writes (``df.write``), also within foreachBatch. Raises OptionError."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_eos.errors import stop
from spark_eos.options.parse import SinkOptions, check_ledger_is_apart, parse_table, refuse_path
from spark_eos.options.table import SINK, SINK_OWNED, Option
from spark_eos.options.values import parse_batch, parse_exact, parse_text

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

#: What `spark_eos.batch_writer` sets beside them: which write of which micro-batch it is.
EACH = (
    Option("foreachBatch.query", "query", parse_exact, "", ""),
    Option("foreachBatch.run", "run", parse_text, "", ""),
    Option("foreachBatch.batch", "batch", parse_batch, "", ""),
    Option("foreachBatch.sink", "sink", parse_exact, "", ""),
    Option("foreachBatch.notes", "notes", parse_text, "", ""),
)


@dataclass(frozen=True)
class Each:
    """One write within foreachBatch: of which query, run and micro-batch, and its name among the writes of that.
    ``notes``: the text of notes (`spark_eos.protocol.head.Notes`) that are to be published with the decision."""

    query: str
    run: str
    batch: int
    sink: str
    notes: str | None = None


@dataclass(frozen=True)
class WriteOptions:
    """Parsed options of ``df.write``. ``job_id``: the user's, if there is one; ``each``: within foreachBatch."""

    sink: SinkOptions
    job_id: str | None = None
    each: Each | None = None


def write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Parse and check what a user gave to ``df.write``. Raises OptionError."""
    refuse_path(raw)
    streaming = {option.name.lower(): option.name for option in SINK if option not in WRITE}
    for key in raw:
        if key.lower() in streaming:
            raise stop("EOS_OPTION_UNSUPPORTED.stream_only", option=streaming[key.lower()])
    values, kafka = parse_table(raw, (*WRITE, *EACH), SINK_OWNED, ignored=("path",))
    job_id = values.pop("job_id", None)
    each = {option.attribute: values.pop(option.attribute) for option in EACH if option.attribute in values}
    options = SinkOptions(kafka=kafka, **values)
    check_ledger_is_apart(options)
    if each and job_id is not None:
        raise stop("EOS_OPTION_CONFLICT.job_id")
    if options.two_phase and job_id is None and not each:
        raise stop("EOS_OPTION_MISSING.job_id", option="job.id")
    return WriteOptions(options, job_id, _each(each, options) if each else None)


def _each(values: dict[str, Any], options: SinkOptions) -> Each:
    name = values.pop("sink", None) or options.topic
    if name is None:
        raise stop("EOS_OPTION_MISSING.sink_name", option="sink")
    return Each(sink=name, **values)
