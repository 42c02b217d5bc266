"""For tests of transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from spark_eos.copy.transforming import as_batch, conformed, without_rejected
from spark_eos.errors import stop

if TYPE_CHECKING:
    from spark_eos.copy.plan import Function


def check_transform(transform: Function, batch: pa.RecordBatch) -> None:
    """Run a transform over these rows of the source at once, one by one, and in pieces of other sizes, and compare.

    Raises RowError (EOS_TRANSFORM_RESULT) where the results differ: then it is not a function of each row.
    """
    whole = _of(transform, [batch])
    for size in sorted({1, 2, 3, max(1, batch.num_rows // 2)}):
        pieces = [batch.slice(at, size) for at in range(0, batch.num_rows, size)]
        if _of(transform, pieces) != whole:
            raise stop("EOS_TRANSFORM_RESULT.not_by_row", size=size, records=batch.num_rows)
    _of(transform, [batch.slice(0, 0)])


def _of(transform: Function, pieces: list[pa.RecordBatch]) -> tuple[list[dict[str, object]], dict[int, str]]:
    """The rows, and the reasons for which records were rejected, by their offsets."""
    rows: list[dict[str, object]] = []
    reasons: dict[int, str] = {}
    for piece in pieces:
        batch, rejected = without_rejected(as_batch(transform(piece)))
        rows += conformed(batch).to_pylist()
        reasons |= rejected
    return rows, reasons
