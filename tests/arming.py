"""Faults in a Spark session that runs: its Python workers are started anew for every environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_view import wait_for
from pyspark.sql import SparkSession

import spark_eos

POINTS_VARIABLE, FOLDER_VARIABLE = "SPARK_EOS_FAULTS", "SPARK_EOS_FAULTS_DIR"


@dataclass(frozen=True)
class Fault:
    """A point that is armed; its marker appears when the fault strikes."""

    marker: Path

    def wait(self) -> int:
        """Until it has struck: the id of the process that was struck."""
        wait_for(self.marker.exists, f"the fault at {self.marker.name}", 60)
        return int(self.marker.read_text())

    def other(self, point: str) -> Fault:
        """Another point that was armed with this one."""
        return Fault(self.marker.with_name(point))

    def release(self) -> None:
        """Let go what is held."""
        self.marker.unlink()


@contextmanager
def armed(spark: SparkSession, faults: str, folder: Path) -> Iterator[Fault]:
    """Queries started inside meet these faults; the fault handed out is the first of them. ``folder`` must be new."""
    folder.mkdir()
    environment = spark.sparkContext.environment
    environment |= {POINTS_VARIABLE: faults, FOLDER_VARIABLE: str(folder)}
    spark_eos.register(spark)
    fault = Fault(folder / faults.partition("=")[0])
    try:
        yield fault
    finally:
        del environment[POINTS_VARIABLE], environment[FOLDER_VARIABLE]
        spark_eos.register(spark)
        for marker in folder.iterdir():
            marker.unlink(missing_ok=True)
        os.rmdir(folder)
