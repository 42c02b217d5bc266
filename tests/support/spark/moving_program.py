"""Runs queries one after the other in one Spark that has its own Kafka connector: a step for each line of input.

``python moving_program.py '<comma-separated jars>'``. A step is JSON: formats and options of source and sink. Its query
runs until the topic is drained. The answer, a line of standard output that begins with ANSWER, is empty or the error's
text.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field

ANSWER = "answer: "


@dataclass(frozen=True)
class Step:
    """One query. The formats are ``kafka``, Spark's own, or ``eos-kafka``."""

    source: str
    sink: str
    source_options: dict[str, str] = field(default_factory=dict)
    sink_options: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    import spark_eos

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", sys.argv[1])
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "WARN")
        .getOrCreate()
    )
    spark_eos.register(spark)
    for line in sys.stdin:
        step = Step(**json.loads(line))
        rows = spark.readStream.format(step.source).options(**step.source_options).load()
        keyed = rows.selectExpr("right(string(value), 1) AS key", "value")
        writer = keyed.writeStream.format(step.sink).options(**step.sink_options).trigger(availableNow=True)
        answer = ""
        try:
            writer.start().awaitTermination()
        except PySparkException as error:
            answer = str(spark_eos.reason(error) or error).replace("\n", " ")
        print(ANSWER + answer, flush=True)
    os._exit(0)  # whoever asked has gone


if __name__ == "__main__":
    main()
