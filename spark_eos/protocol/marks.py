"""What a head says of its query besides the run and the decision: marks of `spark-eos replay`, of foreachBatch, and of
rows that are missing.

A replay makes a query that begins where another one was before. Until it is finished, the new query's head bears
`Unfinished`, which no start gets past; where rows are written to the same topic again, the old query's head bears
`Successor` for good, so that the two can never both go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

#: In place of a sink's name: the query itself, all of whose writes are within its foreachBatch.
WHOLE = ""


@dataclass(frozen=True)
class EachSink:
    """The head is that of the writes to one sink within the foreachBatch of a query; with `WHOLE` as the name, it only
    bears marks for all of its sinks, those without a head of their own among them."""

    query: str
    name: str


@dataclass(frozen=True)
class Unfinished:
    """A replay that has begun. ``of``: the query that is replayed; ``checkpoint``: where that one's is, and ``to``
    where the replay's is to be, the same one where the query goes back in place. ``batch``: the micro-batch that it
    begins with, as a done one. ``lines`` are its offsets, a line of the offset log for each source; ``metadata`` what
    goes before them, and ``done`` the lines of the commit log: what a new checkpoint is made of. ``topic`` is the only
    one that the new query may write to; None where it is the old one's topics, and the old one is to be retired.
    ``group`` is given the offsets.

    In place and without ``lines``, it is no replay: what comes after ``batch`` is dropped, as it is not decided
    (`spark_eos.protocol.dropping`)."""

    of: str
    checkpoint: str
    to: str
    batch: int
    lines: tuple[str, ...]
    metadata: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    topic: str | None = None
    group: str | None = None

    @property
    def in_place(self) -> bool:
        return self.to == self.checkpoint

    @property
    def drops(self) -> bool:
        return self.in_place and not self.lines

    @property
    def dropped(self) -> int:
        """The micro-batch that is dropped."""
        return self.batch + 1


@dataclass(frozen=True)
class Successor:
    """The query that goes on in place of a retired one, and where its checkpoint is; both are empty where an operator
    has closed a mirror for good, and its successor is not known yet."""

    query: str
    checkpoint: str


@dataclass(frozen=True)
class Missing:
    """Rows that were committed and are not visible: those of a transaction, by its id, from this offset of a partition
    on. Nothing removes this mark: who has written the rows by other means goes on with a new checkpoint."""

    transaction: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Marks:
    """The marks of a head. ``topic``: the only one that the query may write to."""

    each: EachSink | None = None
    unfinished: Unfinished | None = None
    successor: Successor | None = None
    topic: str | None = None
    missing: Missing | None = None

    def as_json(self) -> dict[str, Any]:
        """Only the marks that there are."""
        return {name: value for name, value in asdict(self).items() if value is not None}


NO_MARKS = Marks()


def marks_of(raw: Mapping[str, Any]) -> Marks:
    """The inverse of `Marks.as_json`, Raises KeyError and TypeError."""
    unfinished = raw.get("unfinished")
    return Marks(
        each=EachSink(**raw["each"]) if "each" in raw else None,
        unfinished=None if unfinished is None else _unfinished(unfinished),
        successor=Successor(**raw["successor"]) if "successor" in raw else None,
        topic=raw.get("topic"),
        missing=Missing(**raw["missing"]) if "missing" in raw else None,
    )


def _unfinished(raw: Mapping[str, Any]) -> Unfinished:
    lists = {name: tuple(value) for name, value in raw.items() if isinstance(value, list)}
    return Unfinished(**{**raw, **lists})
