"""For tests of transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from spark_eos.direct.transforming import conformed
from spark_eos.errors import SchemaError

if TYPE_CHECKING:
    from spark_eos.direct.plan import Function


def check_transform(transform: Function, batch: pa.RecordBatch) -> None:
    """Run a transform over these rows of the source at once, one by one, and in pieces of other sizes, and compare.

    Raises SchemaError (EOS_TRANSFORM_NOT_BY_ROW) where the results differ: then it is not a function of each row.
    """
    whole = _of(transform, [batch])
    for size in sorted({1, 2, 3, max(1, batch.num_rows // 2)}):
        pieces = [batch.slice(at, size) for at in range(0, batch.num_rows, size)]
        if _of(transform, pieces) != whole:
            raise SchemaError(
                "EOS_TRANSFORM_NOT_BY_ROW",
                f"The transform gives different rows for {batch.num_rows} records when it gets them {size} at a time.",
                hint="A transform has to be a function of each row: how records are split into batches must not "
                "matter.",
                size=size,
            )
    _of(transform, [batch.slice(0, 0)])


def _of(transform: Function, pieces: list[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for piece in pieces for row in conformed(transform(piece)).to_pylist()]
