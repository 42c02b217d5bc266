"""Events of a made-up query, as `spark_eos.ops.metrics` hands them on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: When it began.
T = 1_760_000_000.0


class Script:
    """Events one after the other; each call moves ``at`` on. Times are seconds."""

    def __init__(self, query: str = "q1", name: str | None = "copies") -> None:
        self.events: list[dict[str, Any]] = []
        self.at = T
        self._query, self._name, self._run = query, name, ""

    def tell(self, event: str, after: float = 0.0, **values: object) -> None:
        self.at += after
        self.events.append({"event": event, "at": self.at, **values})

    def start(self, run: str, *, process: bool = True) -> None:
        self._run = run
        if process:
            self.tell("process", 1, version="1")
        self.tell("started", 1, **self._of_run, name=self._name)

    def prepare(self, batch: int, rows: int = 100) -> dict[str, Any]:
        """The tasks take half a second."""
        self.at += 0.6
        what = {"sink": None, "generation": 1, "batch": batch, "rows": rows, "tasks": 2, "prepare_s": 0.5}
        self._prepared = self._of_run | what | {"prepare_began": self.at - 0.55, "prepare_ended": self.at - 0.05}
        self.tell("prepared", **self._prepared)
        return self._prepared

    def commit(self, batch: int, rows: int = 100, *, replayed: bool = False, transactions: int = 2) -> None:
        """The steps take 10, 20 and 30 ms, the micro-batch 750."""
        prepared = self.prepare(batch, rows)
        counts = {"bytes": 9 * rows, "dead_letters": 0, "dropped": 0, "leftovers": 0, "open": 0}
        steps = {"verify_s": 0.01, "decide_s": 0.02, "end_s": 0.03, "commit_s": 0.07}
        what = {"transactions": transactions, "replayed": replayed}
        self.tell("committed", 0.06, **prepared, **counts, **steps, **what)
        progress = {"name": self._name, "batch": batch, "rows_in": rows, "ran": True, "sources": [f"s {self._run}"]}
        self.tell("progress", 0.1, **self._of_run, **progress, began=self.at - 0.75, batch_s=0.75)

    def fail(self, batch: int, condition: str) -> None:
        self.prepare(batch)
        self.tell("failed", 0.01, **self._prepared, condition=condition, decided=True, lost=1)
        self.end(condition)

    def lag(self, stable: int, high: int, held_ms: int = 0) -> None:
        place = {"stable": stable, "high": high, "heldMs": held_ms}
        self.tell("lag", 0.1, source=f"s {self._run}", lag={"in": {"0": place}}, losses=0)

    def end(self, condition: str | None = None) -> None:
        self.tell("terminated", 0.1, **self._of_run, condition=condition)

    def write(self, path: Path) -> Path:
        path.write_text("".join(json.dumps(event) + "\n" for event in self.events))
        return path

    @property
    def _of_run(self) -> dict[str, Any]:
        return {"query": self._query, "run": self._run}


def killed_and_restarted() -> Script:
    """Two micro-batches, a kill while the third commits, its replay in the next run; then a loss and its repair in a
    third run, a transaction that holds the LSO, and no end."""
    script = Script()
    script.start("one")
    script.commit(0)
    script.lag(5, 5)
    script.commit(1)
    script.prepare(2)
    script.start("two")
    script.commit(2, replayed=True, transactions=0)
    script.fail(3, "EOS_TRANSACTION_LOST")
    script.tell("restart", query="q1", condition="EOS_TRANSACTION_LOST")
    script.start("three", process=False)
    script.commit(3, replayed=True, transactions=1)
    script.lag(7, 9, held_ms=1500)
    return script
