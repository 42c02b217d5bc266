"""Copies whose target partitions are chosen by the keys, as a producer of rows chooses them.

Records are decoded, and go through the transform that changes nothing, as rows of the sink without a partition. So all
that holds for transforms holds here. A decision knows the rule by the transform's name, which no function can have.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from spark_eos.errors import invalid_option, stop
from spark_eos.pipelines.copy.plan import SAME, Transform
from spark_eos.spi import Columns, SinkOptions

KEY = "key"
_RULES = (SAME, KEY)
#: By this, decisions know the rule, so it must never change.
_NAME = "partition=key"


def check_rule(rule: str, sink: SinkOptions, *, has_transform: bool) -> None:
    """Check the argument ``partition`` of `spark_eos.copy`. Raises OptionError."""
    if rule not in _RULES:
        raise invalid_option(
            "partition",
            f"'{rule}'",
            (
                "same, the default, to write each record to the partition of the same number, or key, to choose "
                "the partition from its key by 'kafka.partitioner'"
            ),
        )
    if rule == KEY and has_transform:
        raise stop(
            "EOS_OPTION_CONFLICT.remove",
            option="partition",
            given="key",
            why=(
                "there is a transform, and keys choose the partitions of its result unless it has the column "
                "'partition'"
            ),
        )
    if rule == KEY and sink.partitioner == "random":
        raise stop(
            "EOS_OPTION_CONFLICT.partitioner", given="The argument 'partition' is key", option="kafka.partitioner"
        )


def by_key(topic: str | None) -> Transform:
    """Return the transform of copies by key. ``topic``: of all records; None for the topic of the same name."""
    columns = Columns(key=True, topic=topic is None, partition=False, headers=True, timestamp=True)
    names = ("key", "value", "headers", "timestamp", *(("topic",) if columns.topic else ()))
    return Transform(partial(_unplaced, names), _NAME, columns)


def _unplaced(names: tuple[str, ...], batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(names)
