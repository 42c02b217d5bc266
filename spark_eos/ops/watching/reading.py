"""Where events come from: a file that `spark_eos.metrics` writes, or the endpoint that it serves."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from spark_eos.errors import OptionError
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


def _unreadable(source: str, error: Exception) -> OptionError:
    why = error.reason if isinstance(error, urllib.error.URLError) else getattr(error, "strerror", None) or error
    return OptionError(
        "EOS_EVENTS_UNREADABLE",
        f"{source} cannot be read: {why}.",
        hint="Name a file of events (spark_eos.metrics(…, events=FILE)), or the address of a query's metrics, such as "
        "http://localhost:9400.",
    )


def chosen(events: Sequence[Event], query: str | None, source: str) -> str:
    """The label of the query to show: the one that is asked for, or that with most events. Raises OptionError."""
    there = queries_in(events)
    if not there or (query is not None and query not in there):
        what = "no query has reported anything yet" if not there else f"there is no query '{query}'"
        raise OptionError(
            "EOS_EVENTS_WITHOUT_QUERY",
            f"{source}: {what}.",
            hint=f"There are: {', '.join(there)}." if there else "Wait for the first micro-batch.",
        )
    return query or there[-1]
