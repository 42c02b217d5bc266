"""Failpoints: named points at which a test or the demo can stop, fail or kill the code, armed by the environment.

``SPARK_EOS_FAULTS="commit.decided=hold"`` arms one point, ``"prepare.wrote=fail@3, commit.ended=die"`` two; ``@n``
means the n-th time that the point is reached (default 1), counted over all processes. ``SPARK_EOS_FAULTS_DIR`` is a
folder shared by all processes. Each fault strikes once, and then creates the file ``<folder>/<point>`` with the id of
the process in it.

``SPARK_EOS_FAULTS="@<file>"`` names a file with the faults, for processes that live longer than a fault: it is read
whenever a point is reached; if it does not exist, nothing is armed.

Actions:

- ``hold``: wait until that file is removed. The test sees the file, kills or pauses the process, or removes the file.
- ``fail``: raise FaultInjected.
- ``die``: SIGKILL the process that reached the point.

If the variable is not set, ``reach`` does nothing.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path

from spark_eos.base.whole_numbers import whole_number

POINTS = {
    "open.taken": "open: the run has taken the ledger, nothing is settled yet",
    "open.settled": "open: the last decision is settled, the new run is not published yet",
    "open.published": "open: the new run is published, transactions of the dead run are still open",
    "open.cleaned": "open: transactions of earlier runs are aborted",
    "prepare.begun": "a task has begun its transaction, no row is written",
    "prepare.wrote": "a task has handed its first rows to its producer",
    "prepare.mapped": "a mirror's task has handed the entries of the offset map to its producer, after all rows",
    "prepare.flushed": "every row of a task is acknowledged, nothing is checked yet",
    "prepare.prepared": "a task is prepared and about to report it",
    "ahead.read": "the driver is about to take the ledger for the next micro-batch",
    "ahead.taken": "the driver has taken the ledger for the next micro-batch",
    "commit.entered": "the driver has every task's report, nothing is decided",
    "commit.taken": "the driver has taken the ledger, nothing is decided",
    "commit.verified": "every transaction is verified, nothing is decided",
    "commit.noted": "the notes of a decision are written, the decision itself is not",
    "commit.decided": "the decision is durable, no transaction is ended",
    "commit.between": "the first transaction is committed, the others are not",
    "commit.ended": "every transaction is committed, leftovers are not aborted",
    "commit.cleaned": "commit is about to return to Spark, which has not written its commit log yet",
    "commit.completed": "a batch write is completed in the ledger, Spark does not know yet",
    "abort.entered": "the driver is about to abort a micro-batch",
    "abort.closed": "the run is closed, nothing is aborted",
    "table.evolving": "the table lacks columns of the query, and is about to be given them",
    "table.evolved": "the table has the columns, the query has not begun yet",
    "table.written": "a task has written its files for a table, and is about to report them",
    "table.entered": "the driver has every task's files for a table, and has not asked the table",
    "table.asked": "the table does not have the micro-batch, its files are not committed",
    "table.committed": "the table has the micro-batch, Spark has not written its commit log yet",
    "replay.intended": "replay: the head of the new query is published, no start gets past it",
    "replay.filed": "replay: a file of the new checkpoint is written",
    "replay.halted": "replay: no start gets past the old query's head, and what it has open is not aborted yet",
    "replay.begun": "replay: the head from which the query goes on is published",
    "mirror.claimed": "mirror: its claims are noted, who had the topics before may still decide",
    "mirror.retired": "mirror: no start gets past the head of who had the topics, what it has open is not aborted",
    "drop.halted": "drop: no start gets past the query's head, and what it has open is not aborted yet",
    "drop.moved": "drop: a file of the micro-batch was moved out of the offset log",
    "drop.resumed": "drop: the head from which the query goes on is published",
    "recover.closed": "recover: the query is closed, what it has open and not decided is not aborted",
    "recover.cleared": "recover: what is not decided is aborted, what is decided is not committed",
    "recover.committed": "recover: what is decided is committed, the ledger does not say so yet",
}

_ELSEWHERE = ("replay.", "drop.", "recover.", "mirror.", "table.")
_OF_OTHERS = ("commit.noted", "commit.completed", "prepare.mapped")

#: The points that every streaming query can come to; the others are of commands, batch writes, ingests, mirrors and
#: tables.
IN_QUERIES = tuple(point for point in POINTS if not point.startswith(_ELSEWHERE) and point not in _OF_OTHERS)

_ACTIONS = ("hold", "fail", "die")


class FaultInjected(Exception):
    """Raised at a point armed with ``fail``."""


def _parse(spec: str) -> dict[str, tuple[str, int]]:
    armed = {}
    for item in filter(None, (part.strip() for part in spec.split(","))):
        point, _, action = item.partition("=")
        action, _, nth = action.partition("@")
        if point not in POINTS or action not in _ACTIONS or whole_number(nth or "1") is None:
            raise ValueError(f"SPARK_EOS_FAULTS: '{item}' is not point=action[@n]; points: {', '.join(POINTS)}")
        armed[point] = (action, int(nth or 1))
    return armed


_given = os.environ.get("SPARK_EOS_FAULTS", "")
_file = Path(_given[1:]) if _given.startswith("@") else None
_fixed = {} if _file else _parse(_given)


def _armed() -> dict[str, tuple[str, int]]:
    if _file is None:
        return _fixed
    try:
        return _parse(_file.read_text())
    except FileNotFoundError:
        return {}


def armed(point: str) -> bool:
    """Return whether a fault is armed at this point."""
    return point in _armed()


def reach(point: str) -> None:
    """Report that the code has reached ``point``; a fault that is armed there strikes."""
    if not (faults := _armed()):
        return
    assert point in POINTS, point
    if point in faults:
        _strike(point, *faults[point])


def _strike(point: str, action: str, nth: int) -> None:
    folder = Path(os.environ["SPARK_EOS_FAULTS_DIR"])
    if _count(folder, point) != nth:
        return
    marker = folder / point
    draft = folder / f"{point}.pid"
    draft.write_text(str(os.getpid()))
    draft.rename(marker)  # so the marker always contains the process id
    if action == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "fail":
        raise FaultInjected(f"fault injected at {point}")
    while marker.exists():
        time.sleep(0.005)


def _count(folder: Path, point: str) -> int:
    """Return how many times the point has been reached, over all processes, including this time."""
    for n in itertools.count(1):
        try:
            os.close(os.open(folder / f"{point}.{n}", os.O_CREAT | os.O_EXCL))
            return n
        except FileExistsError:
            continue
    raise AssertionError
