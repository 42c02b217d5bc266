"""A Spark query that copies a topic into another one until it is killed: one of the programs that are compared.

``python -m bench.compare.spark_copy '<spec as JSON>'``. The exit code is 1 where the query has stopped by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.compare import ending
from bench.queries import AT_ONCE, BUILTIN_KAFKA, EOS_KAFKA, Flow, start_query
from bench.session import start_alone
from bench.spec import Spec


@dataclass(frozen=True)
class QuerySpec(Spec):
    """``way``: a format of source and sink, or what stands in its place in `bench.queries`. ``sink_options``: beside
    where to write to."""

    way: str
    bootstrap_servers: str
    input: str
    output: str
    checkpoint: str
    sink_options: Mapping[str, str] = field(default_factory=dict)


def main() -> None:
    spec = QuerySpec.given()
    spark = start_alone(BUILTIN_KAFKA if spec.way == BUILTIN_KAFKA else EOS_KAFKA)
    flow = Flow(spec.way, spec.way, spec.input, spec.output, sink_options=spec.sink_options)
    with ending.told():
        start_query(spark, spec.bootstrap_servers, flow, spec.checkpoint, AT_ONCE).awaitTermination()


if __name__ == "__main__":
    main()
