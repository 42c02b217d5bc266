"""Which query an event belongs to, and what it is called: by its name, or by its id where it has none."""

from __future__ import annotations

from collections.abc import Mapping

from spark_eos.ops.metrics.hub import Event

#: What stands for all batch writes: each has an id of its own, and labels must not grow with these.
BATCH_WRITE = "df.write"

_HELD_MS = 1_000


def is_held(place: Mapping[str, int]) -> bool:
    """Whether an open transaction holds back a partition's last stable offset: two looks, a second apart, have found it
    at the same place. A single look finds the last stable offset of a busy topic behind its high watermark anyway,
    which is asked for later."""
    return place["heldMs"] >= _HELD_MS


class Queries:
    """Learns from events. A query counts as one of ours when its sink, or a source of its, has told of something."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._of_source: dict[str, str] = {}
        self._running: dict[str, str] = {}
        self._ours: set[str] = set()

    def learn(self, event: Event) -> None:
        """From any event: names, what runs, which query reads which source, and which ones have our source or sink."""
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
        """Whether the query has our source or sink, as far as its events have told."""
        return query in self._ours

    @property
    def running(self) -> set[str]:
        """The queries with our source or sink that run."""
        return self._running.keys() & self._ours

    def label(self, query: str | None) -> str:
        """Its name, or else its id; one word for all batch writes, which have none."""
        return BATCH_WRITE if query is None else self._names.get(query, query)

    def of_source(self, source: str) -> str | None:
        """The query that reads a source; before its first progress only if no other one runs."""
        if source in self._of_source:
            return self._of_source[source]
        others = self._running.keys() - set(self._of_source.values())
        return next(iter(others)) if len(others) == 1 else None
