"""The query of an event, and its label: its name, or its id without a name."""

from __future__ import annotations

from collections.abc import Mapping

from spark_eos.ops.metrics.hub import Event

#: The label of all batch writes: each has an id of its own, and the number of labels must not grow with them.
BATCH_WRITE = "df.write"

_HELD_MS = 1_000


def is_held(partition: Mapping[str, int]) -> bool:
    """Return whether an open transaction holds back a partition's last stable offset: it was the same for at least a
    second. One look is not enough: in a busy topic, the last stable offset is behind the high watermark, which is
    fetched later."""
    return partition["heldMs"] >= _HELD_MS


class Queries:
    """The queries that events have named. Whether a query has a sink or source of this library is known by its
    events."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._of_source: dict[str, str] = {}
        self._running: dict[str, str] = {}
        self._ours: set[str] = set()

    def learn(self, event: Event) -> None:
        """Note an event: the query's name, whether it runs, its sources, and whether it uses this library."""
        if event["event"] == "lag":
            query = self.of_source(event["source"])
            self._ours |= set() if query is None else {query}
            return
        query = event.get("query")
        if query is None:
            return
        if event.get("name"):
            self._names[query] = event["name"]
        if event["event"] == "started":
            self._running[query] = event["run"]
        elif event["event"] == "terminated":
            self._running.pop(query, None)
        elif event["event"] == "progress":
            self._of_source |= dict.fromkeys(event["sources"], query)
            self._ours |= {query} if event["sources"] else set()
        else:
            self._ours.add(query)

    def is_ours(self, query: str) -> bool:
        """Return whether the query has a source or sink of this library, by its events so far."""
        return query in self._ours

    @property
    def running(self) -> set[str]:
        """The running queries with a source or sink of this library."""
        return self._running.keys() & self._ours

    def label(self, query: str | None) -> str:
        """Return the query's name, or else its id; `BATCH_WRITE` for None."""
        return BATCH_WRITE if query is None else self._names.get(query, query)

    def of_source(self, source: str) -> str | None:
        """Return the query that reads a source; before its first progress, only if no other query runs."""
        if source in self._of_source:
            return self._of_source[source]
        others = self._running.keys() - set(self._of_source.values())
        return next(iter(others)) if len(others) == 1 else None
