"""The table that a query writes to, and how a start judges it: such a query has no record in any ledger.

The query's offset log (`spark_eos.checkpoint.offset_log`) names the table, or a command does. Reads only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError
from spark_eos.ops.checkpoint_logs import Logs
from spark_eos.pipelines.copy.table.options import ICEBERG, table_options
from spark_eos.pipelines.tables.micro_batch import BatchPresence, RangeBatch, Remembered, check_start, presence_of
from spark_eos.pipelines.tables.target import TableReference

#: Conditions by which a start stops with any options. Other errors only say that the table cannot be asked.
_STOPS = ("EOS_ICEBERG_TAG", "EOS_OTHER_TABLE", "EOS_TABLE_CHECKPOINT_BEHIND")
_NO_TABLE = ("EOS_DELTA_NO_TABLE", "EOS_ICEBERG_NO_TABLE")
_KINDS = {"delta": "Delta", "iceberg": "Iceberg"}


@dataclass(frozen=True)
class TableState:
    """A query in its table. ``sink``: the options by which the offset log names the table; ``last``: the query's last
    micro-batch in it, None without one; ``again``: whether it has the micro-batch that the next start runs again;
    ``stop``: the error by which the next start stops; ``problem``: why the table cannot be asked."""

    sink: Mapping[str, str]
    last: int | None = None
    again: BatchPresence | None = None
    stop: EosError | None = None
    problem: str = ""

    @property
    def name(self) -> str:
        """A description of the table."""
        return in_words(self.sink)

    def as_json(self) -> dict[str, Any]:
        stop = None if self.stop is None else self.stop.condition
        return {**self.sink, "last_batch": self.last, "stop": stop, "problem": self.problem or None}


def in_words(sink: Mapping[str, str]) -> str:
    """Return the table that a query's options name."""
    kind, catalog = _KINDS[sink["format"]], sink.get("catalog")
    within = "" if catalog is None else f" in the catalog {catalog}"
    return f"the {kind} table {sink.get('path') or sink.get('table')}{within}"


def reference_of(sink: Mapping[str, str], settings: HadoopSettings) -> TableReference:
    """Return where a query's table is. ``settings``: of its store and its catalog. Raises OptionError and
    UnsupportedError."""
    catalog = {name: settings[name] for name in settings if name == "catalog" or name.startswith("catalog.")}
    storage = {name: settings[name] for name in settings if name not in catalog}
    options = table_options({**sink, **(catalog if sink["format"] == ICEBERG else {})}, storage)
    return options.reference(options.storage)


def table_in(logs: Logs) -> Mapping[str, str]:
    """Return the options by which the offset log names the query's table; none where it names none of a known kind.
    Raises CheckpointError."""
    sources = logs.source_lines(logs.planned[-1]) if logs.planned else []
    named = (source.position.sink for source in sources)
    return next((sink for sink in named if sink.get("format") in _KINDS), {})


def table_state(query: str, sink: Mapping[str, str], logs: Logs) -> TableState:
    """Ask the table of a query. Never raises EosError for the table; raises CheckpointError."""
    last = None
    try:
        reference = reference_of(sink, logs.checkpoint.settings)
        try:
            remembered = reference.remembered(query)
        except EosError as error:
            if logs.done or error.condition not in _NO_TABLE:
                raise
            remembered = Remembered(None, None)  # the first start creates the table
        last = remembered.last
        return TableState(sink, last, _judged(reference, query, remembered, logs))
    except EosError as error:
        is_stop = error.condition in (*_STOPS, *_NO_TABLE)
        return TableState(sink, last, stop=error) if is_stop else TableState(sink, last, problem=str(error))


def _judged(reference: TableReference, query: str, remembered: Remembered, logs: Logs) -> BatchPresence | None:
    """Judge whether the table has the micro-batch that is run again, as a start and the commit of its first micro-batch
    judge it; None where none is. Raises the TableError by which these stop."""
    done, planned = (log[-1] if log else None for log in (logs.done, logs.planned))
    check_start(reference.name, remembered.last, finished=done, planned=planned)
    again = None
    if planned is not None and planned != done:
        again = presence_of(reference.name, remembered, _micro_batch(query, planned, logs))
    if remembered.last is not None and again in (None, BatchPresence.NEW):
        reference.check_kept(query, remembered.last + 1)
    return again


def _micro_batch(query: str, number: int, logs: Logs) -> RangeBatch:
    """Return the micro-batch by the offset log, which does not have where the first one begins: as a rule, that is
    empty."""
    from spark_eos.source.plan import ranges_between  # which imports pyspark, as the commands do not

    end = logs.source_lines(number)
    begin = logs.source_lines(number - 1) if number else end
    pairs = zip(begin, end, strict=False)
    ranges = [r for one, other in pairs for r in ranges_between(one.position, other.position)]
    return RangeBatch(query, number, tuple(ranges))
