"""Events that metrics count, and as much of a session as they need."""

from __future__ import annotations

COMMITTED = {
    **{"event": "committed", "at": 100.0, "query": "q", "sink": None, "run": "r", "generation": 1, "batch": 0},
    **{"rows": 10, "bytes": 90, "dead_letters": 1, "dropped": 3, "tasks": 2, "transactions": 2, "replayed": False},
    **{"leftovers": 0, "open": 0, "prepare_s": 0.2, "verify_s": 0.01, "decide_s": 0.01, "end_s": 0.01, "commit_s": 0.1},
}
LAG = {"t": {"0": {"stable": 3, "high": 5, "heldMs": 1500}, "1": {"stable": 4, "high": 4, "heldMs": 0}}}


class FakeSession:
    """It runs no query; its application is called copier."""

    def __init__(self) -> None:
        self.streams = self.dataSource = self
        self.registered: list[type] = []
        self.listeners: list[object] = []
        self.addListener, self.removeListener = self.listeners.append, self.listeners.remove
        self.conf = {"spark.app.name": "copier"}

    def register(self, source: type) -> None:
        self.registered.append(source)
