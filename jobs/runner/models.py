"""Sections that config files of several jobs share, as pydantic's models: `config.load` reads a file into one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from .values import (
    AVAILABLE_NOW,
    NO_PROPERTIES,
    AtLeastZero,
    Interval,
    Properties,
    SparkSettings,
    Text,
    Trigger,
    missing,
    seconds_of,
)


class Section(BaseModel):
    """A section of a file: its keys are the fields, in camel case. It does not change, and prints no secrets.

    The comment above each field is the key's text in docs/keys.md.
    """

    #: Removed keys → what to do instead.
    gone: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, data: object) -> object:
        """Remove keys without a value, so that they have their defaults."""
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.key_names()}

    @classmethod
    def key_names(cls) -> list[str]:
        """Return the keys of the section."""
        return [str(field.alias) for field in cls.model_fields.values()]

    def extras(self) -> list[str]:
        """Return the extras of the package that the keys and their sections need, besides the extras that the job
        always needs."""
        return [extra for _, value in self if isinstance(value, Section) for extra in value.extras()]


class RestartSection(Section):
    """When the query is started again."""

    #: How many times the query is started again where that [helps](stopped.md#it-stopped-and-a-restart-helps), with no
    #: finished micro-batch in between; 0: never.
    attempts: AtLeastZero = 5
    #: Pause before the first of these restarts. It doubles each time, up to five minutes.
    pause: Interval = "10 seconds"

    @property
    def pause_s(self) -> float:
        """The pause in seconds."""
        return seconds_of(self.pause)


class MetricsSection(Section):
    """Where the job serves metrics, see `spark_eos.metrics`."""

    #: Port at which [metrics](metrics.md) are served; 0 is a free one.
    port: Annotated[AtLeastZero, Field(le=65_535)] | None = None
    #: Interface of that port, such as `0.0.0.0` for all. Without it, only this machine is served.
    host: Text | None = None
    #: File to which each event is appended.
    events: Text | None = None

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.port is None and self.events is None:
            raise missing((), "has neither a port nor a file.", "Use {port: 9400}, {events: FILE}, or both.")
        return self

    def extras(self) -> list[str]:
        """See `Section.extras`."""
        return ["metrics"] if self.port is not None else []


class Job(Section):
    """Keys of every job's file."""

    #: Client properties of each end that is Kafka, without the prefix `kafka.`, such as `bootstrap.servers`. The same
    #: property in `source` or `sink`, with the prefix, takes precedence.
    kafka: Properties = NO_PROPERTIES
    #: When micro-batches begin: at an interval, or `availableNow`: until all data that exists at the start is read.
    trigger: Trigger = "10 seconds"
    restart: RestartSection = RestartSection()
    metrics: MetricsSection | None = None
    #: Settings of the Spark session, such as `spark.master`.
    spark: SparkSettings = NO_PROPERTIES

    @property
    def available_now(self) -> bool:
        """True if the job ends when it has read all data that existed at its start."""
        return self.trigger == AVAILABLE_NOW

    @property
    def trigger_arguments(self) -> dict[str, Any]:
        """Arguments of Spark's ``trigger``."""
        return {"availableNow": True} if self.available_now else {"processingTime": self.trigger}

    @property
    def when(self) -> str:
        """A description of the trigger."""
        return "until all that is there now is read" if self.available_now else f"every {self.trigger}"

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query with this trigger."""
        return writer.trigger(**self.trigger_arguments).start()


class QueryJob(Job):
    """The file of a job that is one streaming query."""

    #: The query's [checkpoint](job.md#the-checkpoint).
    checkpoint: Text
