"""The function of conf/copy_transform.yaml. Its module has to be on Python's path, here and on every node."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def late(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Flights that were more than 15 minutes late, as they are, to the partition that their key chooses."""
    delays = pc.extract_regex(batch.column("value").cast(pa.string()), r'"arr_delay":\s*(?P<minutes>-?\d+)')
    minutes = pc.struct_field(delays, "minutes").cast(pa.int64())  # null, where there is none
    return batch.filter(pc.greater(minutes, 15)).select(["key", "value", "timestamp"])
