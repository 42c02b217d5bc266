"""The section ``transform`` of the jobs: SQL or a function, run by Spark or in the tasks, past the JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pyspark.sql import SparkSession

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.options.parse import SourceOptions
from spark_eos.pipelines.copy.sql import SqlTransform, check_sql
from spark_eos.source.schema import arrow_schema

from .functions import Function, imported
from .models import Section
from .registry import Parsed, check_topic, decodings
from .values import Rejected, Text, missing

if TYPE_CHECKING:
    from spark_eos.pipelines.copy.plan import Function as ArrowFunction
    from spark_eos.pipelines.registry.decoding import Decoding


class ArrowTransform(Section):
    """SQL, which DuckDB may run, or a function of Arrow batches: both past Spark."""

    #: SQL text over the view `input`.
    sql: Text | None = None
    #: `module:function`: a function of Arrow batches. Rows [do not pass through Spark](job.md#past-the-jvm).
    arrow: Function | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [key for key, value in self.ways.items() if value is not None]
        message = "does not have just one transformation."
        if not given:
            raise missing((), message, f"Set one of {', '.join(self.ways)}.")
        if len(given) > 1:
            raise Rejected(message, f"Keep one of {' and '.join(given)}.")
        return self

    @property
    def ways(self) -> dict[str, object]:
        """The keys of which just one is set."""
        return {"sql": self.sql, "arrow": self.arrow}

    @property
    def by_duckdb(self) -> bool:
        """True if DuckDB runs ``sql``."""
        return self.sql is not None

    def extras(self) -> list[str]:
        """See `Section.extras`."""
        return [*super().extras(), *(["sql"] if self.by_duckdb else [])]

    def past_spark(self) -> ArrowFunction | str | None:
        """Return the function or the SQL, as `spark_eos.copy` takes it. Raises ConfigError."""
        if self.arrow is None:
            return self.sql
        function: ArrowFunction = imported(self.arrow, "transform.arrow")
        return function

    def function_past_spark(self) -> ArrowFunction | None:
        """Return the function, or the SQL as one. Raises ConfigError."""
        given = self.past_spark()
        return SqlTransform(given) if isinstance(given, str) else given


class DuckdbTransform(ArrowTransform):
    """A transform by DuckDB or a function of Arrow batches: no row passes through Spark."""

    gone: ClassVar[Mapping[str, str]] = {
        "function": "Set 'arrow', a function of Arrow batches, or 'sql', which DuckDB runs."
    }

    #: Engine that runs `sql`: [DuckDB](copy.md#sql).
    engine: Literal["duckdb"] = "duckdb"


class SparkTransform(ArrowTransform):
    """SQL or a function, by Spark or past it."""

    #: `module:function`: a function that takes and returns a DataFrame.
    function: Function | None = None
    #: Engine that runs `sql`: Spark, or [DuckDB](copy.md#sql), for rows that [do not pass through
    #: Spark](job.md#past-the-jvm).
    engine: Literal["spark", "duckdb"] = "spark"

    @model_validator(mode="after")
    def _engine(self) -> Self:
        if self.by_duckdb and self.sql is None:
            raise Rejected("is for 'sql'.", "Remove it, or set 'sql'.", ["engine"])
        return self

    @property
    def ways(self) -> dict[str, object]:
        """The keys of which just one is set."""
        return {"sql": self.sql, "function": self.function, "arrow": self.arrow}

    @property
    def by_duckdb(self) -> bool:
        """True if DuckDB runs ``sql``."""
        return self.engine == "duckdb"

    @property
    def is_copy(self) -> bool:
        """True if no row passes through Spark."""
        return self.arrow is not None or self.by_duckdb


class DecodedTransform(ArrowTransform):
    """Keys and values may have schemas of a registry."""

    #: How values are [decoded](job.md#schema-registry) with schemas of a registry.
    parse: Parsed | None = None
    #: As `parse`, for the keys of records.
    parse_key: Parsed | None = None

    @property
    def decodes(self) -> bool:
        """True if keys or values are decoded with schemas of a registry."""
        return self.parse is not None or self.parse_key is not None

    def check_subjects(self, topic: str | None) -> None:
        """Check that each schema has a subject. ``topic``: the only one that is read, if it is one. Raises Rejected."""
        check_topic(topic, self.parse, "transform.parse")
        check_topic(topic, self.parse_key, "transform.parseKey")

    def check_before_spark(self, reads: SourceOptions) -> None:
        """Check SQL for DuckDB. With a registry, the columns are known later. Raises SchemaError."""
        if self.by_duckdb and not self.decodes:
            check_sql(str(self.sql), arrow_schema(reads.include_headers))

    def decodings(self, spark: SparkSession, checkpoint: str, topic: str | None) -> dict[str, Decoding]:
        """Return how ``value`` and ``key`` are decoded, by versions that are fixed now. ``topic``: the only one that is
        read. Raises EosError."""
        sections = {"value": self.parse, "key": self.parse_key}
        return decodings(checkpoint, HadoopSettings.from_session(spark), topic, sections)


class ParsedTransform(DecodedTransform, SparkTransform):
    """Values may also be parsed by Spark, by a schema in the file."""

    #: How to [parse](job.md#parsing) values into columns; without it, `value` stays binary. `string` only converts it
    #: to a string.
    format: Literal["json", "csv", "string"] | None = None
    #: Required for json and csv: DDL such as `id BIGINT, name STRING`. Each field becomes a column.
    ddl: Text | None = Field(None, alias="schema")
    #: How to handle a value that does not match the schema, or a record that a transform past the JVM
    #: [rejects](copy.md#records-that-a-transform-rejects): [fail](job.md#parsing), leave it out, or write it to the
    #: topic `deadLetters.topic` of `sink`.
    on_malformed: Literal["fail", "drop", "deadLetters"] = "fail"

    @model_validator(mode="after")
    def _parsing(self) -> Self:
        check_schema(self.ddl, required=self.format in ("json", "csv"))
        if self.on_malformed != "fail" and not (self.ddl is not None or self.decodes or self.is_copy):
            hint = "Remove it, or set 'format: json' and 'schema'."
            raise Rejected("is for values that are parsed.", hint, ["onMalformed"])
        if self.decodes and self.format is not None:
            raise Rejected("is there besides 'parse'.", "Keep one of them.", ["format"])
        if self.is_copy and self.format is not None:
            hint = "Remove it, or set 'sql' with 'engine: spark', or 'function'."
            raise Rejected("is for rows that pass through Spark.", hint, ["format"])
        return self


def check_schema(ddl: str | None, *, required: bool, at: Sequence[str] = ()) -> None:
    """Check that there is a schema if, and only if, the format is parsed. ``at``: the path of the section. Raises
    Rejected."""
    if required and ddl is None:
        raise missing([*at, "schema"], "is missing, and the format needs it.", "Use DDL: id BIGINT, name STRING.")
    if ddl is not None and not required:
        raise Rejected("is not for this format.", "Remove it, or set 'format'.", [*at, "schema"])
