"""Sections of the config files that several jobs have, and what they make of a query."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from spark_eos.checkpoint import Checkpoint
from spark_eos.kafka.config.properties import KafkaProperties

from .checks import check_interval, check_master, seconds_of
from .config import Rejected


@dataclass(frozen=True)
class TopicsConfig:
    """The section ``source`` of jobs that read topics. ``options``: further options of the source."""

    topics: tuple[str, ...]
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int | None = None
    options: KafkaProperties = KafkaProperties({})

    def settings(self, kafka: KafkaProperties) -> dict[str, str]:
        """Options of the source, by their names, without ``options``, which come last. ``kafka``: the client's."""
        settings = {"subscribe": ",".join(self.topics), "startingOffsets": self.starting_offsets}
        if self.max_offsets_per_trigger is not None:
            settings["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
        return settings | with_prefix(kafka)


@dataclass(frozen=True)
class TriggerConfig:
    """When micro-batches begin: repeatedly until everything available has been read, or at an interval without end."""

    available_now: bool = False
    processing_time: str | None = None

    def __post_init__(self) -> None:
        if self.available_now == (self.processing_time is not None):
            raise Rejected(
                "WRONG_VALUE",
                "requires either 'availableNow: true' or 'processingTime'.",
                'Use {availableNow: true} or {processingTime: "1 second"}.',
            )
        if self.processing_time is not None:
            check_interval(self.processing_time, ["processingTime"])

    def __str__(self) -> str:
        return f"every {self.processing_time}" if self.processing_time else "until all that is there now is read"

    @property
    def arguments(self) -> dict[str, object]:
        """As Spark's ``trigger`` takes them."""
        return {"availableNow": True} if self.available_now else {"processingTime": str(self.processing_time)}

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query with this trigger."""
        if self.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=str(self.processing_time)).start()


@dataclass(frozen=True)
class RestartConfig:
    """How often the query is started again where that helps, with no finished micro-batch in between, and the pause
    before the first time, which doubles each time."""

    attempts: int = 5
    pause: str = "10 seconds"

    def __post_init__(self) -> None:
        if self.attempts < 0:
            raise Rejected("WRONG_VALUE", "is below 0.", "Use a number of restarts; 0 is none.", ["attempts"])
        check_interval(self.pause, ["pause"])

    @property
    def pause_s(self) -> float:
        return seconds_of(self.pause)


@dataclass(frozen=True)
class MetricsConfig:
    """Where the job serves metrics, see `spark_eos.metrics`; none without a section ``metrics``. ``port`` 0 is a free
    one."""

    port: int | None = None
    host: str | None = None
    events: str | None = None

    def __post_init__(self) -> None:
        if self.port is None and self.events is None:
            raise Rejected(
                "WRONG_VALUE",
                "has neither a port nor a file.",
                "Use {port: 9400}, {events: FILE}, or both.",
                [],
            )
        if self.port is not None and not 0 <= self.port <= 65_535:
            raise Rejected("WRONG_VALUE", "is not a port.", "Use a number from 0 to 65535.", ["port"])


def check_servers(kafka: KafkaProperties) -> None:
    """A section ``kafka`` names the servers. Raises Rejected."""
    if not kafka.get("bootstrap.servers"):
        raise Rejected(
            "MISSING_KEY", "has no 'bootstrap.servers'.", "Add 'bootstrap.servers: host1:9092,…'.", ["kafka"]
        )


def check_kafka_and_spark(kafka: KafkaProperties, spark: KafkaProperties) -> None:
    """The sections ``kafka`` and ``spark`` of a job: the servers are named, and the master is one. Raises Rejected."""
    check_servers(kafka)
    check_master(spark, ["spark"])


def with_prefix(kafka: KafkaProperties) -> dict[str, str]:
    """Client properties as options of source and sink."""
    return {f"kafka.{key}": value for key, value in kafka.items()}


def is_new(checkpoint: str) -> bool | None:
    """Whether the query of this checkpoint has never been started; None if only Spark can tell, as the checkpoint is
    not on a local disk."""
    if re.match(r"(?!file:)[A-Za-z][\w+.-]*:", checkpoint):
        return None
    return Checkpoint(checkpoint).query_id() is None


def beginning(checkpoint: str, first: str) -> str:
    """Whether the query begins or goes on, for the line that says that Spark is up. ``first``: where a new one begins.
    Empty where nobody knows."""
    return {True: f"a new query, from {first}", False: "the query goes on", None: ""}[is_new(checkpoint)]
