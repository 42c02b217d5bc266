"""What the built-in ``kafka`` format has for an option, and this one has otherwise or not at all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Elsewhere:
    """Options of the built-in format that do something else here, or nothing: what, for each side that has them."""

    name: str
    source: str = ""
    sink: str = ""


ELSEWHERE = (
    Elsewhere(
        "includeHeaders",
        sink="refused: headers are written if there is a column `headers`, as the built-in sink does",
    ),
    Elsewhere(
        "kafka.group.id",
        "better: the group whose committed offsets `startingOffsets` = `group` takes; no group is joined, so queries "
        "do not interfere with each other",
        "refused: use `offsets.group.id`",
    ),
    Elsewhere(
        "kafka.isolation.level",
        "better: `read_committed` is the default, and a micro-batch then ends at the last stable offset; "
        "`read_uncommitted` on request",
    ),
    Elsewhere(
        "kafka.client.rack",
        "better: `${env:NAME}` is [each executor's own](source.md#the-nearest-replica)",
    ),
    Elsewhere("fs.…, google.cloud.auth.…", sink="new: the built-in sink does not read the checkpoint"),
    Elsewhere(
        "Trigger.Continuous",
        "absent: Spark does not offer it to Python data sources; use a short processing-time interval",
        "absent, as for the source; real-time mode takes no Python sinks either",
    ),
    Elsewhere(
        "df.write", sink="better: all rows appear at once or not at all; with `job.id` it can be [run again](batch.md)"
    ),
    Elsewhere("foreachBatch", sink="better: exactly once, by [`spark_eos.batch_writer`](batch.md#within-foreachbatch)"),
    Elsewhere(
        "output mode update",
        sink="absent: Spark does not offer it to Python data sinks; use append with a watermark, or complete",
    ),
    Elsewhere(
        "spark.kafka.consumer.cache.*, spark.kafka.producer.cache.*",
        "absent: each Python worker keeps connections, which end with it",
        "absent: each transaction has a producer of its own",
    ),
    Elsewhere(
        "spark.kafka.clusters.* (delegation tokens)",
        "absent, as in the sink: no tokens are taken from Spark; use `kafka.sasl.*`",
    ),
)
