"""For tests of transforms."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_eos.errors import stop
from spark_eos.pipelines.copy.comparing import differing
from spark_eos.pipelines.copy.transforming import Transformed, as_batch, as_sink_rows, reasons_by_row, without_rejected

if TYPE_CHECKING:
    from spark_eos.pipelines.copy.plan import Function


def check_transform(transform: Function, batch: pa.RecordBatch, *, table: bool = False, place: str = "offset") -> None:
    """Run a transform over these rows of the source at once, one by one, and in pieces of other sizes, and compare.
    ``table``: its rows go to a table, with columns of any name and type; ``place``: the column that identifies a
    rejected row, which is ``_line`` for rows of files.

    Raises RowError (EOS_TRANSFORM_RESULT) where the results differ: then it is not a function of each row.
    """

    def apply(piece: pa.RecordBatch) -> Transformed:
        rows, reasons = without_rejected(as_batch(transform(piece)), keeps_offset=table, number_column=place)
        return Transformed(rows if table else as_sink_rows(rows), reasons_by_row(piece, reasons, place))

    whole = apply(batch)
    for size in sorted({1, 2, 3, max(1, batch.num_rows // 2)}):
        if differing(apply, batch, whole, repeat(size, -(-batch.num_rows // size))) is not None:
            raise stop("EOS_TRANSFORM_RESULT.sample", how=f"{size} at a time", records=batch.num_rows)
    apply(batch.slice(0, 0))
