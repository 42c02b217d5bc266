"""Faults in a Spark session that runs.

Spark starts new Python workers for each new environment, six processes to a query, so the session's environment stays
as it is: it names a link that is not there as long as nothing is armed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.waiting import wait_for

POINTS_VARIABLE, FOLDER_VARIABLE = "SPARK_EOS_FAULTS", "SPARK_EOS_FAULTS_DIR"
_FAULTS = "armed"


@dataclass(frozen=True)
class Fault:
    """A point that is armed; its marker appears when the fault strikes."""

    marker: Path

    def wait(self) -> int:
        """Until it has struck: the id of the process that was struck."""
        wait_for(self.marker.exists, f"the fault at {self.marker.name}")
        return int(self.marker.read_text())

    def other(self, point: str) -> Fault:
        """Another point that was armed with this one."""
        return Fault(self.marker.with_name(point))

    def release(self) -> None:
        """Let go what is held."""
        self.marker.unlink()


def environment(link: Path) -> dict[str, str]:
    """Of workers that look for faults behind ``link``."""
    return {POINTS_VARIABLE: f"@{link / _FAULTS}", FOLDER_VARIABLE: str(link)}


def can_be_armed(spark: SparkSession, link: Path) -> None:
    """Let the workers of a new session look for faults behind ``link``, before anything is registered with it."""
    spark.sparkContext.environment |= environment(link)


@contextmanager
def armed(spark: SparkSession, faults: str, folder: Path) -> Iterator[Fault]:
    """All that runs in the session meets these faults; the one handed out is the first. ``folder`` must be new."""
    folder.mkdir()
    (folder / _FAULTS).write_text(faults)
    link = Path(spark.sparkContext.environment[FOLDER_VARIABLE])
    link.symlink_to(folder)
    try:
        yield Fault(folder / faults.partition("=")[0])
    finally:
        link.unlink()  # what is held sees its marker no more
        for left in folder.iterdir():
            left.unlink(missing_ok=True)
        folder.rmdir()
