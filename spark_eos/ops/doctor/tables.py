"""Findings on the tables that a query writes to. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError
from spark_eos.ops.doctor.findings import Finding, Severity
from spark_eos.ops.table_state import in_words, place_of


def table(sink: Mapping[str, str], settings: HadoopSettings) -> Finding:
    """Whether a table is there, or can be created. ``sink``: the query's options that name it; ``settings``: see
    `spark_eos.ops.table_state.place_of`. That it can be written is not tried."""
    subject = f"output {in_words(sink)}"
    try:
        place = place_of(sink, settings)
        columns = place.columns()
        if columns is None:
            place.check_new(None)
    except EosError as error:
        is_unknown = error.restart_helps or error.condition == "EOS_NOT_INSTALLED"
        severity = Severity.UNKNOWN if is_unknown else Severity.ERROR
        return Finding("table", subject, severity, error.message, error.hint, (), error.condition)
    what = "it does not exist yet; the first start of a query creates it"
    if columns is not None:
        what = f"it is there, with {len(columns.schema)} column(s)"
    return Finding("table", subject, Severity.OK, what)


def as_argument(sink: Mapping[str, str]) -> str:
    """The table as the option --output names it."""
    return f"{sink['format']}:{sink.get('path') or sink['table']}"
