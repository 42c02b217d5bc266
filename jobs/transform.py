"""The transformation of a job: source columns → (parse) → SQL text or function → the sink's columns."""

from __future__ import annotations

import importlib
import re
import traceback
from dataclasses import dataclass
from typing import Literal

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jobs.checks import check_function
from jobs.config import Rejected
from spark_eos.errors import ConfigError

#: The name of the stream in a SQL text.
VIEW = "input"
SINK_COLUMNS = ("key", "value", "topic", "partition", "headers", "timestamp")
#: Files whose lines in a stack say nothing about the user's function.
_NOT_THE_USERS = re.compile(rf"/(pyspark|py4j)/|^<frozen |^{re.escape(__file__)}$")
_CORRUPT = "_malformed"
_DDL = "Use DDL: id BIGINT, name STRING."
_PARSED = "_parsed"


@dataclass(frozen=True)
class ParseConfig:
    """How a record's value becomes columns. ``schema`` is Spark's DDL: ``id BIGINT, name STRING``."""

    format: Literal["json", "csv", "string"]
    schema: str | None = None
    on_malformed: Literal["fail", "drop"] = "fail"

    def __post_init__(self) -> None:
        if self.format == "string" and self.schema:
            raise Rejected("WRONG_VALUE", "'string' does not take a schema.", "Remove 'schema', or set 'format: json'.")
        if self.format != "string" and not self.schema:
            raise Rejected(
                "MISSING_KEY", f"'{self.format}' requires a schema.", "Add 'schema: id BIGINT, name STRING'."
            )


@dataclass(frozen=True)
class TransformConfig:
    """Either ``sql``, a SQL text over the view ``input``, or ``function``, ``module:function``."""

    sql: str | None = None
    function: str | None = None
    parse: ParseConfig | None = None

    def __post_init__(self) -> None:
        if bool(self.sql) == bool(self.function):
            raise Rejected("WRONG_VALUE", "requires either 'sql' or 'function'.", "Keep one of them.")
        if self.function:
            check_function(self.function, ["function"])


def transformed(source: DataFrame, config: TransformConfig) -> DataFrame:
    """The rows for the sink. Raises ConfigError if the transformation does not fit the source or the sink."""
    parsed = _parsed(source, config.parse) if config.parse else source
    rows = _by_sql(parsed, config.sql) if config.sql else _by_function(parsed, str(config.function))
    unknown = [name for name in rows.columns if name not in SINK_COLUMNS]
    if unknown or "value" not in rows.columns:
        wrong = f"has columns that the sink does not know: {', '.join(unknown)}" if unknown else "has no column 'value'"
        raise ConfigError(
            "EOS_CONFIG_TRANSFORM_COLUMNS",
            f"The result of 'transform' {wrong}.",
            hint=f"Select 'value' and, as needed, any of: {', '.join(SINK_COLUMNS)}.",
            key="transform",
        )
    return rows


def _by_sql(stream: DataFrame, sql: str) -> DataFrame:
    stream.createOrReplaceTempView(VIEW)
    try:
        return stream.sparkSession.sql(sql)
    except (ParseException, AnalysisException) as error:
        raise ConfigError(
            "EOS_CONFIG_SQL",
            f"Spark rejects 'transform.sql': {_first_line(error)}",
            hint=f"The view '{VIEW}' has the columns: {', '.join(stream.columns)}.",
            key="transform.sql",
        ) from None


def _by_function(stream: DataFrame, name: str) -> DataFrame:
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
        if not callable(function):
            raise TypeError(f"it is of type {type(function).__name__}")
        rows = function(stream)
        if not isinstance(rows, DataFrame):
            raise TypeError(f"it returned {type(rows).__name__}, not a DataFrame")
    except Exception as error:  # whatever the user's module and function do
        raise ConfigError(
            "EOS_CONFIG_FUNCTION",
            f"'transform.function' failed: {_said(error)}.",
            hint=f"It has to take and return a DataFrame. The given one has the columns: {', '.join(stream.columns)}.",
            key="transform.function",
        ) from error
    return rows


def _said(error: Exception) -> str:
    """The error's first line, and the line of the user's code that it comes from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _NOT_THE_USERS.search(f.filename)]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0].rstrip('.;')}{place}"


def _parsed(source: DataFrame, config: ParseConfig) -> DataFrame:
    """The source with its value's fields as columns beside its own. A tombstone (no value) has nulls in all of them."""
    text = F.col("value").cast("string")
    if config.format == "string":
        return source.withColumn("value", text)
    names = _schema(config, source.columns).names
    parse = F.from_json if config.format == "json" else F.from_csv
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    struct = parse(text, f"{config.schema}, {_CORRUPT} STRING", options)
    checked = source.withColumn(_PARSED, struct).where(_accepts(config.on_malformed))
    return checked.select(*source.columns, *(F.col(_PARSED)[name].alias(name) for name in names))


def _accepts(on_malformed: str) -> Column:
    parsed = F.col(_PARSED)
    empty = F.trim(F.col("value").cast("string")) == ""  # which Spark takes for a CSV row of nulls
    well_formed = F.col("value").isNull() | (parsed.isNotNull() & parsed[_CORRUPT].isNull() & ~empty)
    if on_malformed == "drop":
        return well_formed
    message = F.concat(
        F.lit("[EOS_JOB_MALFORMED_ROW] The value of topic "),
        F.col("topic"),
        F.lit(", partition "),
        F.col("partition"),
        F.lit(", offset "),
        F.col("offset"),
        F.lit(" does not fit 'transform.parse'. Hint: Mend the schema, or leave such rows out by 'onMalformed: drop'."),
    )
    # rand() makes the filter one that the optimizer neither moves nor merges, so that no filter of the user's comes
    # first and drops a malformed row unseen. (Only an unsure one does: the optimizer knows that rand() < 0 is false and
    # then removes the error with it.) It is reached by malformed rows alone, after the error.
    failure = F.raise_error(message).isNull() & (F.rand() < 0.5)
    return F.when(well_formed, F.lit(True)).otherwise(failure)


def _schema(config: ParseConfig, taken: list[str]) -> StructType:
    try:
        schema = StructType.fromDDL(str(config.schema))
    except ParseException as error:
        raise ConfigError(
            "EOS_CONFIG_SCHEMA",
            f"Spark rejects 'transform.parse.schema': {_first_line(error)}",
            hint=_DDL,
            key="transform.parse.schema",
        ) from None
    if not isinstance(schema, StructType):
        raise ConfigError(
            "EOS_CONFIG_SCHEMA",
            f"'transform.parse.schema' is one type, {schema.simpleString()}, but names no fields.",
            hint=_DDL,
            key="transform.parse.schema",
        )
    clash = sorted({name.lower() for name in schema.names} & {name.lower() for name in taken})
    if clash:
        raise ConfigError(
            "EOS_CONFIG_SCHEMA",
            f"'transform.parse.schema' has fields with the names of source columns: {', '.join(clash)}.",
            hint="Set 'format: string', and parse the value in the SQL text under other names.",
            key="transform.parse.schema",
        )
    return schema


def _first_line(error: AnalysisException | ParseException) -> str:
    """Spark's own sentence, without the query's plan and the JVM's stack."""
    return str(error).strip().partition("\n")[0].rstrip(";")
