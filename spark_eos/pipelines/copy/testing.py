"""For tests of transforms."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_eos.errors import stop
from spark_eos.pipelines.copy.by_row import Outcome, differing, outcome

if TYPE_CHECKING:
    from spark_eos.pipelines.copy.plan import Function


def check_transform(transform: Function, batch: pa.RecordBatch, *, table: bool = False, place: str = "offset") -> None:
    """Run a transform over these rows of the source at once, one by one, and in pieces of other sizes, and compare.
    ``table``: its rows go to a table, with columns of any name and type; ``place``: the column by which it names rows
    that it rejects, which is ``_line`` for rows of files.

    Raises RowError (EOS_TRANSFORM_RESULT) where the results differ: then it is not a function of each row.
    """

    def apply(piece: pa.RecordBatch) -> Outcome:
        return outcome(transform(piece), table=table, place=place)

    whole = apply(batch)
    for size in sorted({1, 2, 3, max(1, batch.num_rows // 2)}):
        if differing(apply, batch, whole, repeat(size, -(-batch.num_rows // size)), place) is not None:
            raise stop("EOS_TRANSFORM_RESULT.sample", how=f"{size} at a time", records=batch.num_rows)
    apply(batch.slice(0, 0))
