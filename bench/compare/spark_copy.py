"""A Spark query that copies a topic into another one until it is killed: one of the programs that are compared.

``python -m bench.compare.spark_copy '<spec as JSON>'``. The exit code is 1 where the query has stopped by itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from bench.queries import BUILTIN_KAFKA, COPY, EOS_KAFKA, MIRROR, Flow, read_topic, source_options, write_stream
from bench.session import start_alone
from spark_eos.mirror.plan import Targets
from spark_eos.mirror.start import mirror

_TRIGGER = {"processingTime": "0 seconds"}


@dataclass(frozen=True)
class CopySpec:
    """``way``: a format of source and sink, `COPY` or `MIRROR`. ``sink_options``: beside where to write to."""

    way: str
    bootstrap_servers: str
    input: str
    output: str
    checkpoint: str
    sink_options: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def start(spark: SparkSession, spec: CopySpec) -> StreamingQuery:
    """The query, which goes on where its checkpoint is."""
    own = spec.way in (COPY, MIRROR)
    flow = Flow(*(spec.way,) * 2, spec.input, spec.output, sink_options=spec.sink_options)
    servers = {"kafka.bootstrap.servers": spec.bootstrap_servers}
    if not own:
        rows = read_topic(spark, spec.bootstrap_servers, flow)
        return write_stream(rows, spec.bootstrap_servers, flow, spec.checkpoint).trigger(**_TRIGGER).start()
    source, sink = source_options(spec.bootstrap_servers, flow), servers | dict(spec.sink_options)
    if spec.way == MIRROR:
        targets = Targets(prefix=spec.output.removesuffix(spec.input))
        return mirror(spark, source=source, target=sink, targets=targets, checkpoint=spec.checkpoint, trigger=_TRIGGER)
    return spark_eos.copy(
        spark, source=source, sink=sink | {"topic": spec.output}, checkpoint=spec.checkpoint, trigger=_TRIGGER
    )


def main() -> None:
    spec = CopySpec(**json.loads(sys.argv[1]))
    spark = start_alone(BUILTIN_KAFKA if spec.way == BUILTIN_KAFKA else EOS_KAFKA)
    start(spark, spec).awaitTermination()


if __name__ == "__main__":
    main()
