"""Whether a transform is a function of each row: it gets the same records together and in pieces, and is compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from spark_eos.pipelines.copy.transforming import OFFSET, as_batch, conformed, without_rejected


@dataclass(frozen=True)
class Outcome:
    """What a transform makes of some records: rows with the sink's columns, and by their offsets the reasons for those
    that it rejects."""

    rows: pa.RecordBatch
    rejected: dict[int, str]


@dataclass(frozen=True)
class Piece:
    """Some records of a batch: the place of the first one, and how many they are."""

    first: int
    count: int


#: A transform, whatever it does about records that it rejects.
Apply = Callable[[pa.RecordBatch], Outcome]


def outcome(result: object, *, table: bool = False, place: str = OFFSET) -> Outcome:
    """Of what a transform returned. ``table``: as rows of a table, whose columns may have any name and type; ``place``:
    the column by which it names records. Raises SchemaError, RowError."""
    rows, rejected = without_rejected(as_batch(result), keeps_offset=table, place=place)
    return Outcome(rows if table else conformed(rows), rejected)


def _are_equal(rows: pa.RecordBatch, others: pa.RecordBatch) -> bool:
    """Whether they have the same values, where Arrow takes NaN for another value than NaN."""
    if rows.schema != others.schema or rows.num_rows != others.num_rows:
        return False
    pairs = zip(rows.columns, others.columns, strict=True)
    return all(one.equals(other) or repr(one.to_pylist()) == repr(other.to_pylist()) for one, other in pairs)


def differing(
    apply: Apply, batch: pa.RecordBatch, whole: Outcome, sizes: Iterable[int], place: str = OFFSET
) -> Piece | None:
    """Give the batch to the transform in pieces of these sizes, which are all of it, in order. ``place``: the column
    with what rejected records are named by.

    Returns the first piece whose rows and rejected records are not the next ones of the whole batch, which may be for
    those that a piece before it lacks; None where all are the same.
    """
    pieces: list[Piece] = []
    rejected: dict[int, str] = {}
    rows = 0
    for size in sizes:
        first = pieces[-1].first + pieces[-1].count if pieces else 0
        pieces.append(Piece(first, min(size, batch.num_rows - first)))
        found = apply(batch.slice(first, size))
        expected = whole.rows.slice(rows, found.rows.num_rows)
        if not _are_equal(found.rows, expected) or not found.rejected.items() <= whole.rejected.items():
            return pieces[-1]
        rows += found.rows.num_rows
        rejected |= found.rejected
    if rows < whole.rows.num_rows:
        return pieces[-1]
    unjust = whole.rejected.keys() - rejected.keys()
    if not unjust:
        return None
    at = batch.column(place).to_pylist().index(min(unjust))
    return next(piece for piece in pieces if piece.first <= at < piece.first + piece.count)
