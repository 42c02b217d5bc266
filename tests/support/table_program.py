"""A query past the JVM to a table as a program of its own, until its input is drained: ``python -m
tests.support.table_program FILE``, whose JSON has the arguments of `spark_eos.copy`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import spark_eos
from jobs.runner.session import start

_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def main() -> None:
    arguments = json.loads(Path(sys.argv[1]).read_text())
    spark_eos.copy(start("to a table", _SETTINGS), **arguments, trigger={"availableNow": True}).awaitTermination()


if __name__ == "__main__":
    main()
