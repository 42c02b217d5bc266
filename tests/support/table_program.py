"""A query past the JVM to a table as a program of its own, until its input is drained: ``python -m
tests.support.table_program FILE``, whose JSON has the arguments of `spark_eos.copy`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import spark_eos

_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def main() -> None:
    builder = SparkSession.builder
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    arguments = json.loads(Path(sys.argv[1]).read_text())
    spark_eos.copy(builder.getOrCreate(), **arguments, trigger={"availableNow": True}).awaitTermination()


if __name__ == "__main__":
    main()
