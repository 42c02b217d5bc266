"""The transform of a job whose rows may go past Spark: by DuckDB, or by a function of Arrow batches, in the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import model_validator
from pyspark.sql import SparkSession

from spark_eos.checkpoint.settings import HadoopSettings, of_session
from spark_eos.options.parse import SourceOptions
from spark_eos.pipelines.copy.sql import SqlTransform as SqlFunction
from spark_eos.pipelines.copy.sql import check_sql
from spark_eos.source.schema import arrow_schema

from .models import ParsedTransform, SqlTransform, Transform, check_one_of
from .registry import Parsed, decodings
from .transform import imported
from .values import Function, Rejected

if TYPE_CHECKING:
    from spark_eos.pipelines.copy.plan import Function as ArrowFunction
    from spark_eos.pipelines.registry.decoding import Decoding


class ArrowTransform(SqlTransform):
    """SQL by DuckDB, or a function of Arrow batches: both past Spark."""

    #: `module:function`: a function of Arrow batches. Rows [do not pass through Spark](job.md#past-the-jvm).
    arrow: Function | None = None

    @property
    def by_duckdb(self) -> bool:
        """Whether DuckDB runs ``sql``."""
        return self.sql is not None

    def extras(self) -> list[str]:
        """See `Section.extras`."""
        return [*super().extras(), *(["sql"] if self.by_duckdb else [])]

    def past_spark(self) -> ArrowFunction | str | None:
        """What `spark_eos.copy` takes: the function or the SQL. Raises ConfigError."""
        if self.arrow is None:
            return self.sql
        function: ArrowFunction = imported(self.arrow, "transform.arrow")
        return function

    def function_past_spark(self) -> ArrowFunction | None:
        """The function, or the SQL as one. Raises ConfigError."""
        given = self.past_spark()
        return SqlFunction(given) if isinstance(given, str) else given


class DuckdbTransform(ArrowTransform):
    """By DuckDB or a function of Arrow batches: no row passes through Spark."""

    gone: ClassVar[Mapping[str, str]] = {
        "function": "Set 'arrow', a function of Arrow batches, or 'sql', which DuckDB runs."
    }

    #: What runs `sql`: [DuckDB](copy.md#sql).
    engine: Literal["duckdb"] = "duckdb"

    @model_validator(mode="after")
    def _one(self) -> Self:
        check_one_of({"sql": self.sql, "arrow": self.arrow})
        return self


class PastSparkTransform(ArrowTransform, Transform):
    """By Spark, or past it."""

    #: What runs `sql`: Spark, or [DuckDB](copy.md#sql), for rows that [do not pass through Spark](job.md#past-the-jvm).
    engine: Literal["spark", "duckdb"] = "spark"

    @model_validator(mode="after")
    def _one(self) -> Self:
        check_one_of(self.ways)
        if self.engine == "duckdb" and self.sql is None:
            raise Rejected("is for 'sql'.", "Remove it, or set 'sql'.", ["engine"])
        return self

    @property
    def ways(self) -> dict[str, object]:
        """The keys of which just one is set."""
        return {"sql": self.sql, "function": self.function, "arrow": self.arrow}

    @property
    def by_duckdb(self) -> bool:
        """Whether DuckDB runs ``sql``."""
        return self.engine == "duckdb"

    @property
    def is_copy(self) -> bool:
        """Whether no row passes through Spark."""
        return self.arrow is not None or self.by_duckdb


class DecodedTransform(ArrowTransform):
    """Also values with schemas of a registry."""

    #: How values are [decoded](job.md#schema-registry) with schemas of a registry.
    parse: Parsed | None = None
    #: The same of keys.
    parse_key: Parsed | None = None

    @property
    def decodes(self) -> bool:
        """Whether keys or values are decoded with schemas of a registry."""
        return self.parse is not None or self.parse_key is not None

    @property
    def parsed(self) -> Mapping[str, Parsed | None]:
        """How values and keys are decoded."""
        return {"value": self.parse, "key": self.parse_key}

    def check_before_spark(self, reads: SourceOptions) -> None:
        """Check SQL for DuckDB. With a registry, the columns are known later. Raises SchemaError."""
        if self.by_duckdb and not self.decodes:
            check_sql(str(self.sql), arrow_schema(reads.include_headers))

    def decodings(self, spark: SparkSession, checkpoint: str, topic: str | None) -> dict[str, Decoding]:
        """By ``value`` and ``key``: how they are decoded, by versions that are fixed now. ``topic``: the only one that
        is read. Raises EosError."""
        return decodings(checkpoint, HadoopSettings(of_session(spark)), topic, self.parsed)


class EngineTransform(DecodedTransform, PastSparkTransform, ParsedTransform):
    """All of these: by Spark or past it."""

    @model_validator(mode="after")
    def _parsed_once(self) -> Self:
        if self.decodes and self.format is not None:
            raise Rejected("is there besides 'parse'.", "Keep one of them.", ["format"])
        if self.is_copy and self.format is not None:
            hint = "Remove it, or set 'sql' with 'engine: spark', or 'function'."
            raise Rejected("is for rows that pass through Spark.", hint, ["format"])
        return self

    @property
    def may_reject(self) -> bool:
        """Past the JVM, a function or SQL may reject any record."""
        return super().may_reject or self.is_copy
