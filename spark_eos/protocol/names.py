"""Transactional ids: made and parsed exactly, never matched by prefix alone."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

#: Sets of transactional ids: micro-batches take turns with them, so that one need not wait for the markers of the one
#: before, and needs no ids of its own.
SLOTS = 2


#: After the prefix: the transactional id by which a driver tries whether it may use two-phase commit.
TWO_PHASE_TRIAL = "two-phase-commit-trial"


_DOCTOR = "doctor"


_TAIL = re.compile(r"(\d+)-(\d+)-([01])(?:-(\d+))?(?:-r(\d+))?")


@dataclass(frozen=True, order=True)
class TaskId:
    """Parts of a task's transactional id, besides prefix and query:
    ``<generation>-<partition>-<slot>[-<attempt>][-r<rev>]``.

    The attempt is left out for the first one; a repair carries the revision of the decision that it leads to.
    """

    generation: int
    partition: int
    slot: int
    attempt: int = 0
    rev: int = 0


def task_name(prefix: str, query: str, task: TaskId) -> str:
    """Return the transactional id of one attempt of one task."""
    attempt = f"-{task.attempt}" if task.attempt else ""
    rev = f"-r{task.rev}" if task.rev else ""
    return f"{prefix}-{query}-{task.generation}-{task.partition}-{task.slot}{attempt}{rev}"


def parse_task_name(prefix: str, query: str, name: str) -> TaskId | None:
    """Parse an id that `task_name` has made; None for every other id, the ledger's own among them."""
    start = f"{prefix}-{query}-"
    match = _TAIL.fullmatch(name[len(start) :]) if name.startswith(start) else None
    if match is None:
        return None
    generation, partition, slot, attempt, rev = (int(group or 0) for group in match.groups())
    parsed = TaskId(generation, partition, slot, attempt, rev)
    return parsed if task_name(prefix, query, parsed) == name else None


_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


_OWNED = re.compile(rf"(.*)-({_UUID})-(?:ledger|{_TAIL.pattern})", re.DOTALL)


def owner_in(name: str) -> tuple[str, str] | None:
    """Return prefix and query of a transactional id, of a task or of a ledger, with any prefix: a query's id has one
    shape, and the rest of the name another, so that there is one way to read it. None for any other id."""
    match = _OWNED.fullmatch(name)
    return (match[1], match[2]) if match is not None and is_name_of(match[1], match[2], name) else None


def names_of(queries: Iterable[str] = ()) -> str:
    """Return a pattern, as brokers and Python know it, of all ids of these queries, or of all queries, under any
    prefix."""
    return f".*-({'|'.join(sorted(map(re.escape, queries))) or _UUID})-.*"


def is_task_name(
    prefix: str, query: str, name: str, *, before: int | None = None, generation_and_slot: tuple[int, int] | None = None
) -> bool:
    """Return whether this is the id of a task of the query; with ``before``, of a generation before that one; with
    ``generation_and_slot``, of these."""
    task = parse_task_name(prefix, query, name)
    if task is None or (generation_and_slot is not None and (task.generation, task.slot) != generation_and_slot):
        return False
    return before is None or task.generation < before


def tasks_since(prefix: str, query: str, generation: int) -> str:
    """Return a pattern, as brokers and Python know it, of all ids of the query's tasks from this generation on."""
    digits = str(generation)
    larger = [f"{digits[:n]}[{int(digit) + 1}-9]" + "[0-9]" * (len(digits) - n - 1) for n, digit in enumerate(digits)]
    larger = [one for digit, one in zip(digits, larger, strict=True) if digit != "9"]
    longer = "[0-9]" * (len(digits) + 1) + "+"
    return f"{re.escape(prefix)}-{query}-({'|'.join([digits, *larger, longer])})-.*"


def newest_generation(prefix: str, query: str, names: Iterable[str]) -> int:
    """Return the newest generation of the query's tasks among these transactional ids; 0 where there is none."""
    tasks = (parse_task_name(prefix, query, name) for name in names)
    return max((task.generation for task in tasks if task is not None), default=0)


_FIRST_TASKS = 16


_LEDGER = "-ledger"


def first_names(prefix: str, query: str) -> tuple[str, ...]:
    """Return the ids by which the coordinator knows a query that has decided its micro-batch 0: of the ledger, and of
    the first run's first tasks."""
    tasks = (task_name(prefix, query, TaskId(1, partition, 0)) for partition in range(_FIRST_TASKS))
    return ledger_name(prefix, query), *tasks


def ledger_name(prefix: str, query: str) -> str:
    """Return the transactional id under which the runs of a query take turns on the ledger."""
    return f"{prefix}-{query}{_LEDGER}"


def is_name_of(prefix: str, query: str, name: str) -> bool:
    """Return whether this is an id of the query: of its ledger, or of a task."""
    return name == ledger_name(prefix, query) or is_task_name(prefix, query, name)


def is_ledger_name(name: str) -> bool:
    """Return whether this id of a query is that of its ledger."""
    return name.endswith(_LEDGER)


def doctor_name(prefix: str) -> str:
    """Return a transactional id by which `spark-eos doctor` checks whether it may use this prefix. It belongs to no
    query, and so is in no list of transactions."""
    return f"{prefix}-{_DOCTOR}"


#: The namespace of ids that stand for a query's in the ledger and in transactional ids.
_IDS = uuid.UUID("6b0f3b0e-6d0c-5c55-9c0b-6f1f6a2f3c11")


def query_of_job(job_id: str) -> str:
    """Return the id that stands for a batch write's query."""
    return str(uuid.uuid5(_IDS, joined("job", job_id)))


def query_of_sink(query: str, sink: str) -> str:
    """Return the query id of the writes to one sink within a query's foreachBatch."""
    return str(uuid.uuid5(_IDS, joined("sink", query, sink)))


#: Prefix of the names of ingests, which no query that users name has.
INGESTS = "ingest "


def query_of_replay(query: str, checkpoint: str) -> str:
    """Return the id of the query that a replay makes at a new checkpoint: the same one whenever the command is
    repeated."""
    return str(uuid.uuid5(_IDS, joined("replay", query, checkpoint)))


def joined(*texts: str) -> str:
    """Join texts of users by spaces, so that the same number of other texts never gives the same result: only the last
    text keeps its own spaces, which are %20 in the others."""
    *others, last = texts
    return " ".join([*(text.replace("%", "%25").replace(" ", "%20") for text in others), last])
