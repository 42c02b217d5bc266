"""What the config files of several jobs have in common, as pydantic's models: `config.load` reads a file into one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from spark_eos.kafka.config.properties import KafkaProperties

from .checks import Rejected, check_function, check_interval, check_master, seconds_of

_AVAILABLE_NOW = "availableNow"
_ONE_TEXT = "Use a text, a number, true or false. Several names are one text with commas, and JSON is a text in quotes."


class Section(BaseModel):
    """A section of a file: its keys are the fields, in camel case. It does not change, and prints no secrets.

    The comment above each field is what docs/keys.md says about the key.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, data: object) -> object:
        """A key without a value has its default."""
        if not isinstance(data, dict):
            return data
        keys = {field.alias for field in cls.model_fields.values()}
        return {key: value for key, value in data.items() if value is not None or key not in keys}


def unknown(key: str, known: Sequence[str], at: Sequence[str] = ()) -> Rejected:
    """The error for a key that there is not, with the nearest one that there is."""
    lowered = {each.lower(): each for each in known}
    near = difflib.get_close_matches(key.lower(), lowered, n=1)
    hint = f"Did you mean '{lowered[near[0]]}'?" if near else f"Known here: {', '.join(known) or 'none'}."
    return Rejected("UNKNOWN_KEY", "is not a known key.", hint, at)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int):
        raise Rejected("INVALID_VALUE", "is not one value.", _ONE_TEXT)
    return str(value)


def _filled(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise Rejected("INVALID_VALUE", "is empty, or has a null character.", "Set a value.")
    return text


def _boolean(value: object) -> bool:
    text = _text(value).lower()
    if text not in ("true", "false"):
        raise Rejected("INVALID_VALUE", "is neither true nor false.", "Use one of them.")
    return text == "true"


def _number(value: object) -> int:
    text = _text(value)
    if not text.removeprefix("-").isdecimal() or len(text) > 18:
        raise Rejected("INVALID_VALUE", "is not a whole number.", "Use a whole number, without a unit.")
    return int(text)


def _properties(values: Mapping[str, str]) -> KafkaProperties:
    names = [name.lower() for name in values]
    for name in values:
        if names.count(name.lower()) > 1:
            hint = "Keep one of them: capital letters make no difference."
            raise Rejected("INVALID_VALUE", "is there twice.", hint, [name])
    return KafkaProperties(values)


def _interval(text: str) -> str:
    check_interval(text)
    return text


def _function(name: str) -> str:
    check_function(name)
    return name


def _trigger(text: str) -> str:
    if text != _AVAILABLE_NOW:
        check_interval(text, f"Use {_AVAILABLE_NOW}, or an interval, such as 1 second or 2 minutes 30 seconds.")
    return text


AnyText = Annotated[str, BeforeValidator(_text)]
Text = Annotated[AnyText, AfterValidator(_filled)]
Boolean = Annotated[bool, BeforeValidator(_boolean)]
Number = Annotated[int, BeforeValidator(_number)]
AtLeastOne = Annotated[Number, Field(ge=1)]
#: Free names, and their values as texts. It prints no secrets.
Properties = Annotated[Mapping[str, AnyText], AfterValidator(_properties)]
Interval = Annotated[AnyText, AfterValidator(_interval)]
#: ``module:function``, which the module defines.
Function = Annotated[AnyText, AfterValidator(_function)]
Trigger = Annotated[AnyText, AfterValidator(_trigger)]
NO_PROPERTIES = KafkaProperties({})


class Restart(Section):
    """When the query is started again."""

    #: How many times the query is started again where that [helps](errors.md), with no finished micro-batch in between;
    #: 0: never.
    attempts: Annotated[Number, Field(ge=0)] = 5
    #: Pause before the first of these restarts. It doubles each time, up to five minutes.
    pause: Interval = "10 seconds"

    @property
    def pause_s(self) -> float:
        """The pause in seconds."""
        return seconds_of(self.pause)


class Metrics(Section):
    """Where the job serves metrics, see `spark_eos.metrics`."""

    #: Port at which [metrics](metrics.md) are served; 0 is a free one.
    port: Annotated[Number, Field(ge=0, le=65_535)] | None = None
    #: Interface of that port, such as `0.0.0.0` for all. Without it, only this machine is served.
    host: Text | None = None
    #: File to which each event is appended.
    events: Text | None = None

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.port is None and self.events is None:
            hint = "Use {port: 9400}, {events: FILE}, or both."
            raise Rejected("MISSING_KEY", "has neither a port nor a file.", hint)
        return self


class Job(Section):
    """What every job's file has."""

    #: Client properties of each end that is Kafka, without the prefix `kafka.`, such as `bootstrap.servers`. The same
    #: property in `source` or `sink`, with the prefix, takes precedence.
    kafka: Properties = NO_PROPERTIES
    #: When micro-batches begin: at an interval, or `availableNow`: until everything that is there now is read.
    trigger: Trigger = "10 seconds"
    restart: Restart = Restart()
    metrics: Metrics | None = None
    #: Settings of the Spark session, such as `spark.master`.
    spark: Properties = NO_PROPERTIES

    @model_validator(mode="after")
    def _master(self) -> Self:
        check_master(self.spark)
        return self

    @property
    def available_now(self) -> bool:
        """Whether the job ends when it has read all that was there."""
        return self.trigger == _AVAILABLE_NOW

    @property
    def trigger_arguments(self) -> dict[str, object]:
        """As Spark's ``trigger`` takes them."""
        return {"availableNow": True} if self.available_now else {"processingTime": self.trigger}

    @property
    def when(self) -> str:
        """The trigger in words."""
        return "until all that is there now is read" if self.available_now else f"every {self.trigger}"

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query with this trigger."""
        if self.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=self.trigger).start()


class QueryJob(Job):
    """The file of a job that is one streaming query."""

    #: The query's [checkpoint](job.md#the-checkpoint).
    checkpoint: Text


class Transform(Section):
    """How rows are transformed: ``sql`` over the view ``input``, or ``function``, from DataFrame to DataFrame."""

    #: SQL text over the view `input`.
    sql: Text | None = None
    #: `module:function`: a function that takes and returns a DataFrame.
    function: Function | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        check_one_of({"sql": self.sql, "function": self.function})
        return self


def check_one_of(keys: Mapping[str, object]) -> None:
    """Just one of these keys is set. Raises Rejected."""
    given = [key for key, value in keys.items() if value is not None]
    if len(given) != 1:
        hint = f"Keep one of {' and '.join(given)}." if given else f"Set one of {', '.join(keys)}."
        raise Rejected("INVALID_VALUE" if given else "MISSING_KEY", "does not have just one transformation.", hint)


class ParsedTransform(Transform):
    """And how values become columns before."""

    #: How to [parse](job.md#parsing) values into columns; without it, `value` stays binary. `string` only converts it
    #: to a string.
    format: Literal["json", "csv", "string"] | None = None
    #: Required for json and csv: DDL such as `id BIGINT, name STRING`. Each field becomes a column.
    ddl: Text | None = Field(None, alias="schema")
    #: What to do with a value that does not match the schema: [fail](job.md#parsing), leave it out, or write it to the
    #: topic `deadLetters.topic` of `sink`.
    on_malformed: Literal["fail", "drop", "deadLetters"] = "fail"

    @model_validator(mode="after")
    def _parsing(self) -> Self:
        check_schema(self.ddl, required=self.format in ("json", "csv"))
        if self.on_malformed != "fail" and not self.ddl:
            hint = "Remove it, or set 'format: json' and 'schema'."
            raise Rejected("INVALID_VALUE", "is for values that are parsed.", hint, ["onMalformed"])
        return self


def check_schema(ddl: str | None, *, required: bool) -> None:
    """A format that is parsed has a schema, and no other one has. Raises Rejected."""
    if required and ddl is None:
        hint = "Use DDL: id BIGINT, name STRING."
        raise Rejected("MISSING_KEY", "is missing, and the format needs it.", hint, ["schema"])
    if ddl is not None and not required:
        raise Rejected("INVALID_VALUE", "is not for this format.", "Remove it, or set 'format'.", ["schema"])
