"""Two topics, and the job from one to the other, to be started as a program."""

from __future__ import annotations

from pathlib import Path

from tests.support.judges.kafka_view import KafkaView, write

_CONFIG = """\
kafka: {{bootstrap.servers: "{servers}"}}
source: {{subscribe: {source}{reads}}}
transform:
  {transform}
sink: {{topic: {target}, offsets.group.id: {source}-group}}
checkpoint: {checkpoint}
trigger: {trigger}
spark:
  spark.master: local[2]
  spark.ui.enabled: false
  spark.driver.host: 127.0.0.1
  spark.driver.bindAddress: 127.0.0.1
"""
#: Of numbers below 1,000.
_DOUBLE = """format: json
  schema: n INT
  sql: SELECT key, CAST(2 * n AS STRING) AS value FROM input WHERE n < 1000"""


class TopicsJob:
    """Two topics of two partitions, a config file that leads from one to the other, and what is in them."""

    def __init__(self, view: KafkaView, source: str, target: str, folder: Path) -> None:
        self.view, self.servers = view, view.bootstrap_servers
        self.source, self.target, self.folder = source, target, folder
        self.checkpoint = folder / "checkpoint"

    def config(self, transform: str = _DOUBLE, trigger: str = "availableNow", reads: str = "") -> Path:
        """The job's file. ``reads``: further keys of the source."""
        file = self.folder / "job.yaml"
        places = {"servers": self.servers, "source": self.source, "target": self.target, "checkpoint": self.checkpoint}
        file.write_text(_CONFIG.format(**places, transform=transform, trigger=trigger, reads=reads))
        return file

    def produce(self, *values: str) -> None:
        write(self.servers, self.source, [(n % 2, value) for n, value in enumerate(values)])

    def output(self) -> list[str]:
        return sorted(self.view.values(self.target))

    def group_offsets(self) -> int:
        return sum(self.view.group(f"{self.source}-group", self.source).values())
