"""Checks that a transform is a function of each row: it gets the same records together and in pieces, and is
compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from spark_eos.pipelines.copy.transforming import Transformed

#: A transform, with any `OnMalformed`.
Apply = Callable[[pa.RecordBatch], Transformed]


def _are_equal(rows: pa.RecordBatch, others: pa.RecordBatch) -> bool:
    """Return whether they have the same values, where Arrow takes NaN for another value than NaN."""
    if rows.schema != others.schema or rows.num_rows != others.num_rows:
        return False
    pairs = zip(rows.columns, others.columns, strict=True)
    return all(one.equals(other) or repr(one.to_pylist()) == repr(other.to_pylist()) for one, other in pairs)


def differing(apply: Apply, batch: pa.RecordBatch, whole: Transformed, sizes: Iterable[int]) -> int | None:
    """Give the batch to the transform in consecutive pieces of these sizes, which cover it.

    Returns the row number at which the first piece begins whose rows and rejected records differ from the next ones in
    ``whole``; None where all are the same. The cause may be rows that an earlier piece lacks.
    """
    firsts: list[int] = []
    rejected: dict[int, str] = {}
    rows = end = 0
    for size in sizes:
        first, end = end, min(end + size, batch.num_rows)
        firsts.append(first)
        done = apply(batch.slice(first, end - first))
        own = {first + number: reason for number, reason in done.rejected.items()}
        expected = whole.rows.slice(rows, done.rows.num_rows)
        if not _are_equal(done.rows, expected) or not own.items() <= whole.rejected.items():
            return first
        rows += done.rows.num_rows
        rejected |= own
    if rows < whole.rows.num_rows:
        return firsts[-1]
    unjust = whole.rejected.keys() - rejected.keys()
    return max(first for first in firsts if first <= min(unjust)) if unjust else None
