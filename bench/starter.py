"""A driver that starts a query and can start another one: the program that mode ``start`` measures from outside.

``python -m bench.starter '<spec as JSON>'`` starts Spark and the first query, and then obeys its standard input: a line
``stop`` ends the query, and the next line starts the next one; just before that, the time is printed as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.queries import AT_ONCE, Flow, start_query
from bench.session import start_alone
from bench.spec import Spec


@dataclass(frozen=True)
class StarterSpec(Spec):
    """``queries``: topic to read, topic to write to, and checkpoint of each, by which it may be told to go on."""

    bootstrap_servers: str
    format: str
    queries: Sequence[tuple[str, str, str]]


def main() -> None:
    spec = StarterSpec.given()
    spark = start_alone(spec.format)
    for number, (source, target, checkpoint) in enumerate(spec.queries):
        if number > 0:
            sys.stdin.readline()
            print(json.dumps(time.time()), flush=True)
        flow = Flow(spec.format, spec.format, source, target)
        query = start_query(spark, spec.bootstrap_servers, flow, checkpoint, AT_ONCE)
        sys.stdin.readline()
        query.stop()


if __name__ == "__main__":
    main()
