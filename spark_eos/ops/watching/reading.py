"""Where events come from: a file that `spark_eos.metrics` writes, or the endpoint that it serves."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from spark_eos.errors import EosError, stop
from spark_eos.ops.metrics.hub import Event, parsed
from spark_eos.ops.metrics.recording import EventFile
from spark_eos.ops.watching.story import queries_in

_TIMEOUT_S = 10.0


class EventReader:
    """Reads ``source``: all events of a file, or the latest ones of an endpoint, ``http://HOST:PORT``."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._file = None if source.startswith(("http://", "https://")) else EventFile(Path(source))

    def read(self) -> list[Event]:
        """What there is by now. Raises OptionError."""
        try:
            return self._ask() if self._file is None else self._file.read()
        except (OSError, ValueError) as error:  # the errors of urllib are OSErrors
            raise _unreadable(self.source, error) from None

    def _ask(self) -> list[Event]:
        address = f"{self.source.rstrip('/').removesuffix('/metrics')}/events"
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
            return list(parsed(answer.read()))


def _unreadable(source: str, error: Exception) -> EosError:
    why = error.reason if isinstance(error, urllib.error.URLError) else getattr(error, "strerror", None) or error
    return stop("EOS_PLOT_IMPOSSIBLE.unreadable", source=source, why=why)


def chosen(events: Sequence[Event], query: str | None, source: str) -> str:
    """The label of the query to show: the one that is asked for, or that with most events. Raises OptionError."""
    there = queries_in(events)
    if not there:
        raise stop("EOS_PLOT_IMPOSSIBLE.no_events", source=source)
    if query is not None and query not in there:
        raise stop("EOS_PLOT_IMPOSSIBLE.no_query", source=source, query=query, queries=", ".join(there))
    return query or there[-1]
