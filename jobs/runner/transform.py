"""The transformation of a job: source columns → (parse) → SQL text or function → the sink's columns."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from spark_eos.errors import stop
from spark_eos.kafka.letter_headers import (
    EXCEPTION,
    MESSAGE,
    SOURCE_CLUSTER,
    SOURCE_OFFSET,
    SOURCE_PARTITION,
    SOURCE_TOPIC,
)
from spark_eos.sink.schema import Columns

from .columns import PARSED, first_line, in_filter, raised, struct_of, with_fields
from .functions import cause_of, imported
from .lines import malformed_counted
from .registry import UNFIT, ColumnCodecs, checked, encoded_rows, is_fit, parsed
from .transforms import ParsedTransform, SparkTransform
from .values import invalid

#: The name of the stream in a SQL text.
VIEW = "input"
_MALFORMED = "[EOS_JOB_MALFORMED_ROW]"
#: Keys and values without a registry.
_AS_THEY_ARE = ColumnCodecs()


@dataclass(frozen=True)
class Letters:
    """The topic of dead letters, and the id of the cluster from which records are read, empty where it is not known."""

    topic: str
    cluster: str


def transformed(
    source: DataFrame,
    config: SparkTransform | None,
    *,
    letters: Letters | None = None,
    topic: str | None = None,
    columns: ColumnCodecs = _AS_THEY_ARE,
) -> DataFrame:
    """Return the rows for the sink. Raises ConfigError if the transformation does not fit the source or the sink.

    ``config``: None for rows as they are. ``letters``: where malformed rows go, if they are to be kept; then ``topic``
    is the topic of all other rows, unless they have a column of that name. ``columns``: keys and values with schemas of
    a registry.
    """
    rows = encoded_rows(result(source, config, columns), columns)
    unknown = [name for name in rows.columns if name not in Columns.NAMES]
    if unknown or "value" not in rows.columns:
        names = ", ".join(unknown)
        wrong = f"returns columns that the sink does not know: {names}" if unknown else "returns no column 'value'"
        raise invalid("transform", wrong, f"Select 'value' and, as needed, any of: {', '.join(Columns.NAMES)}")
    if letters is None:
        return rows
    assert isinstance(config, ParsedTransform)
    return _with_letters(rows, source, config, letters, topic, columns)


def _with_letters(
    rows: DataFrame,
    source: DataFrame,
    config: ParsedTransform,
    letters: Letters,
    topic: str | None,
    columns: ColumnCodecs,
) -> DataFrame:
    """Return the rows, each with its topic, and the dead letters of records that do not parse, with headers that say
    why."""
    if topic is None and "topic" not in rows.columns:
        raise invalid("transform", "returns no column 'topic', and 'sink.topic' is not set", "Set one of them")
    if topic is not None:
        rows = rows.withColumn("topic", F.lit(topic))
    for name in ("key", "value"):
        if name in rows.columns and isinstance(rows.schema[name].dataType, StringType):
            rows = rows.withColumn(name, F.col(name).cast("binary"))
    malformed = _checked(source, config, columns).where(~_is_well_formed(columns))
    why = _why(source, config, columns, letters.cluster)
    kept = malformed.select("key", "value", F.lit(letters.topic).alias("topic"), why)
    try:
        return rows.unionByName(kept, allowMissingColumns=True)
    except AnalysisException as error:
        problem = f"returns a column of another type than a Kafka record has: {first_line(error)}"
        types = "'key' and 'value' are strings or binary, 'headers' array<struct<key: string, value: binary>>"
        raise invalid("transform", problem, types) from None


def _why(source: DataFrame, config: ParsedTransform, columns: ColumnCodecs, cluster: str) -> Column:
    """Return the headers of a dead letter: the record's own, then the reason. ``cluster``: see `Letters`."""
    message = F.lit(f"The value does not fit 'transform.schema': {config.format}, {config.ddl}.")
    if columns.decodes:
        message = F.concat(F.lit("It cannot be decoded: "), F.col(UNFIT), F.lit("."))
    position = {SOURCE_TOPIC: "topic", SOURCE_PARTITION: "partition", SOURCE_OFFSET: "offset"}
    texts = {
        EXCEPTION: F.lit(_MALFORMED.strip("[]")),
        MESSAGE: message,
        **{header: F.col(name).cast("string") for header, name in position.items()},
        SOURCE_CLUSTER: F.lit(cluster),
    }
    pairs = [F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in texts.items()]
    headers = F.array(*pairs)
    if "headers" in source.columns:
        headers = F.when(F.col("headers").isNull(), headers).otherwise(F.concat("headers", headers))
    return headers.alias("headers")


def result(source: DataFrame, config: SparkTransform | None, columns: ColumnCodecs = _AS_THEY_ARE) -> DataFrame:
    """Apply the transform to the source, before its columns are checked. Raises ConfigError if it does not fit it."""
    if config is None:
        return source
    stream = source
    if isinstance(config, ParsedTransform) and (config.format is not None or columns.decodes):
        stream = _parsed(source, config, columns)
    return _by_sql(stream, config.sql) if config.sql else _by_function(stream, str(config.function))


def _by_sql(stream: DataFrame, sql: str) -> DataFrame:
    stream.createOrReplaceTempView(VIEW)
    try:
        return stream.sparkSession.sql(sql)
    except (ParseException, AnalysisException) as error:
        raise stop(
            "EOS_CONFIG_INVALID_VALUE.sql",
            key="transform.sql",
            why=first_line(error),
            columns=", ".join(stream.columns),
        ) from None


def _by_function(stream: DataFrame, name: str) -> DataFrame:
    function = imported(name, "transform.function")
    try:
        rows = function(stream)
        if not isinstance(rows, DataFrame):
            raise TypeError(f"it returned {type(rows).__name__}, not a DataFrame")
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        columns = ", ".join(stream.columns)
        raise stop(
            "EOS_CONFIG_FUNCTION.call", key="transform.function", cause=cause_of(error), columns=columns
        ) from error
    return rows


def _parsed(source: DataFrame, config: ParsedTransform, columns: ColumnCodecs) -> DataFrame:
    """Return the source with its value's fields as columns beside its own. A tombstone (no value) has nulls in all of
    them. With schemas of a registry, decoded keys and values replace the bytes."""
    if config.format == "string":
        return source.withColumn("value", F.col("value").cast("string"))
    names = [] if columns.decodes else struct_of(str(config.ddl), "transform.schema", source.columns).names
    rows = _checked(source, config, columns)
    if config.on_malformed == "drop":
        rows = malformed_counted(rows, ~_is_well_formed(columns))
    rows = rows.where(_accepts(config.on_malformed, columns))
    if columns.decodes:
        return parsed(rows, source, columns)
    return rows.select(*source.columns, *(F.col(PARSED)[name].alias(name) for name in names))


def _checked(source: DataFrame, config: ParsedTransform, columns: ColumnCodecs) -> DataFrame:
    """Return the source with the columns that `_is_well_formed` needs: its value as a struct, or why it cannot be
    decoded."""
    if columns.decodes:
        return checked(source, columns, letters=config.on_malformed == "deadLetters")
    return with_fields(source, F.col("value").cast("string"), str(config.format), str(config.ddl), {})


def _is_well_formed(columns: ColumnCodecs) -> Column:
    """Return a column that is true for well-formed rows, else false; never null, so that it and its negation part the
    rows in two."""
    if columns.decodes:
        return is_fit()
    empty = F.trim(F.col("value").cast("string")) == ""  # else a row of one field
    return F.col("value").isNull() | (F.col(PARSED).isNotNull() & ~empty)


def _accepts(on_malformed: str, columns: ColumnCodecs) -> Column:
    well_formed = _is_well_formed(columns)
    if on_malformed != "fail":
        return well_formed
    position = {name: F.col(name) for name in ("topic", "partition", "offset")}
    if columns.decodes:
        failure = raised("EOS_JOB_MALFORMED_ROW.undecodable", **position, why=F.col(UNFIT))
    else:
        failure = raised("EOS_JOB_MALFORMED_ROW.record", **position)
    return F.when(well_formed, F.lit(True)).otherwise(in_filter(failure))
