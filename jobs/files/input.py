"""The section ``files`` of an ingest, and the rows of its files as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from spark_eos.errors import ConfigError, FileError
from spark_eos.ingest.folder import File
from spark_eos.ingest.source import FILE, FILES_FORMAT, LINE, Form, options_of, parquet_schema, spark_schema
from spark_eos.ingest.taken import Splits
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.storage.settings import HadoopSettings

from ..runner.checks import check_interval, seconds_of
from ..runner.config import Rejected
from ..runner.parsing import PARSED, RESERVED, with_fields

_OF_BOTH = ("dateFormat", "timestampFormat", "timestampNTZFormat", "locale")
#: What may be said to Spark's parsers. The others would leave rows out, or read them in another way from day to day.
OPTIONS: dict[str, tuple[str, ...]] = {
    "csv": (
        *(
            "header",
            "multiLine",
            "delimiter",
            "quote",
            "escape",
            "nullValue",
            "emptyValue",
            "nanValue",
            "positiveInf",
            "negativeInf",
        ),
        *("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", *_OF_BOTH),
    ),
    "json": (
        "allowUnquotedFieldNames",
        "allowSingleQuotes",
        "allowNumericLeadingZeros",
        "primitivesAsString",
        *_OF_BOTH,
    ),
    "text": (),
    "parquet": (),
}
#: Of these, the first is for us alone, and the second asks Spark's parser for more than one record.
_OURS = ("header", "multiLine")
#: What a line break, or Spark's parser, needs for itself.
_NOT_SPECIAL = "\r\n\0"


@dataclass(frozen=True)
class CompleteConfig:
    """When a file may be taken: when it has not changed for a while, when a file with its name and the ``marker`` lies
    beside it, or as soon as it is seen (``renamed``). One of these."""

    unchanged_for: str | None = None
    marker: str | None = None
    renamed: bool = False

    def __post_init__(self) -> None:
        if [self.unchanged_for is not None, self.marker is not None, self.renamed].count(True) != 1:
            raise Rejected(
                "WRONG_VALUE",
                "requires just one of 'unchangedFor', 'marker' and 'renamed: true'.",
                "Use {unchangedFor: 10 seconds}, {marker: .done}, or {renamed: true} where files come by a rename.",
            )
        if self.unchanged_for is not None:
            check_interval(self.unchanged_for, ["unchangedFor"])

    @property
    def unchanged_s(self) -> float:
        return 0.0 if self.unchanged_for is None else seconds_of(self.unchanged_for)


@dataclass(frozen=True)
class FilesConfig:
    """Which files to take, and what is in them."""

    path: str
    format: Literal["csv", "json", "parquet", "text"]
    pattern: str = "*"
    schema: str | None = None
    options: KafkaProperties = KafkaProperties({})
    on_malformed: Literal["fail", "drop"] = "fail"
    complete: CompleteConfig = CompleteConfig(unchanged_for="10 seconds")
    on_changed: Literal["fail", "take"] = "fail"
    on_copy: Literal["fail", "take"] = "fail"
    max_files_per_trigger: int = 100
    max_bytes_per_trigger: int | None = None
    tasks: int | None = None

    def __post_init__(self) -> None:
        parsed = self.format in ("csv", "json")
        if parsed and not self.schema:
            raise Rejected(
                "MISSING_KEY", f"'{self.format}' requires a schema.", "Add 'schema: id BIGINT, name STRING'."
            )
        if self.schema and not parsed:
            raise Rejected("WRONG_VALUE", f"'{self.format}' does not take a schema.", "Remove 'schema'.", ["schema"])
        for name in self.options:
            if name not in OPTIONS[self.format]:
                known = ", ".join(OPTIONS[self.format]) or "none"
                raise Rejected(
                    "UNKNOWN_KEY", "is not an option of this format.", f"Options: {known}.", ["options", name]
                )
        if self.format == "csv":
            self._check_csv()
        for field, key in (("max_files_per_trigger", "maxFilesPerTrigger"), ("tasks", "tasks")):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise Rejected("WRONG_VALUE", "is below 1.", "Use a whole number of at least 1.", [key])

    def _check_csv(self) -> None:
        for name in ("quote", "delimiter", "escape"):
            text = self.options.get(name, "x")
            if len(text.encode()) != 1 or text in _NOT_SPECIAL:
                raise Rejected(
                    "WRONG_VALUE",
                    "is not one byte.",
                    "Use one ASCII character, and no line break.",
                    ["options", name],
                )
        if self._delimiter in (self._quote, "\\", self.options.get("escape")) or self._quote in " \t\\":
            raise Rejected(
                "WRONG_VALUE",
                "have a 'quote' and a 'delimiter' that do not fit.",
                "Use different characters: a backslash is for 'escape' alone, and a space or tab for 'delimiter'.",
                ["options"],
            )
        if self.options.get("escape", self._quote) not in (self._quote, "\\"):
            raise Rejected(
                "WRONG_VALUE",
                "is neither the quote nor a backslash.",
                "Leave it out where quotes are doubled, which is the default, or use '\\\\'.",
                ["options", "escape"],
            )
        for name in ("header", "multiLine", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"):
            if self.options.get(name, "true").lower() not in ("true", "false"):
                raise Rejected("WRONG_VALUE", "is neither true nor false.", "Use one of them.", ["options", name])

    @property
    def _quote(self) -> str:
        return self.options.get("quote", '"')

    @property
    def _delimiter(self) -> str:
        return self.options.get("delimiter", ",")

    def _is_set(self, option: str, default: str) -> bool:
        return self.options.get(option, default).lower() == "true"

    def struct(self) -> StructType:
        """The schema of csv and json. Raises ConfigError."""
        try:
            struct = StructType.fromDDL(str(self.schema))
        except ParseException as error:
            raise _bad_schema(f"Spark rejects it: {str(error).strip().partition(chr(10))[0].rstrip(';')}") from None
        taken = {FILE, LINE, *RESERVED}
        if not isinstance(struct, StructType) or {name.lower() for name in struct.names} & taken:
            raise _bad_schema(f"it has to name fields, and none of {', '.join(sorted(taken))}.")
        return struct

    def form(self) -> Form:
        """What the tasks have to know. Raises ConfigError."""
        if self.format != "csv":
            return Form(parquet=self.format == "parquet", blank=self.format == "text")
        return Form(
            quote=self._quote,
            backslash=self.options.get("escape") == "\\",
            delimiter=self._delimiter,
            skip_space=self._is_set("ignoreLeadingWhiteSpace", "false"),
            multi_line=self._is_set("multiLine", "true"),
            header=tuple(self.struct().names) if self._is_set("header", "false") else (),
        )


def _bad_schema(why: str) -> ConfigError:
    return ConfigError(
        "EOS_CONFIG_SCHEMA",
        f"'files.schema' cannot be used: {why}",
        hint="Use DDL: id BIGINT, name STRING.",
        key="files.schema",
    )


def rows_of(spark: SparkSession, config: FilesConfig, splits: Splits, settings: HadoopSettings) -> DataFrame:
    """What the tasks read: a row for each record, not yet parsed. Raises FileError for columns that Spark has no type
    for."""
    reader = spark.read.format(FILES_FORMAT).options(**options_of(config.form(), splits))
    if config.format == "parquet":
        file = splits[0][0]
        struct = spark_schema(file, parquet_schema(file, settings))
        if {FILE, LINE} & set(struct.names):
            raise _reserved(file)
        reader = reader.schema(struct.add(FILE, StringType()).add(LINE, LongType()))
    return reader.load()


def _reserved(file: File) -> FileError:
    return FileError(
        "EOS_FILE_MALFORMED",
        f"{file.uri} has a column {FILE} or {LINE}, which are those of the file's place.",
        hint="Rename it in the program that writes the files.",
        uri=file.uri,
    )


def parsed(rows: DataFrame, config: FilesConfig) -> DataFrame:
    """The rows of the data source; of csv and json with the column `PARSED`, null where a row is malformed."""
    if config.format in ("text", "parquet"):
        return rows
    options = {name: value for name, value in config.options.items() if name not in _OURS}
    return with_fields(rows, F.col("value"), config.format, str(config.schema), options)


def malformed(config: FilesConfig) -> Column:
    """Of the rows of `parsed`, those that do not fit the schema."""
    return F.lit(False) if config.format in ("text", "parquet") else F.col(PARSED).isNull()


def accepted(rows: DataFrame, config: FilesConfig) -> DataFrame:
    """The rows of `parsed` with the fields of their files as columns, without those that are malformed. One of these is
    an error with ``onMalformed: fail``. With ``drop`` it is, too, if it has several lines: good ones may be among them,
    behind a quote that should not be there."""
    if config.format in ("text", "parquet"):
        return rows
    fields = [F.col(PARSED)[name].alias(name) for name in config.struct().names]
    hint = "Mend the schema, or leave such rows out by 'onMalformed: drop'."
    if config.on_malformed == "drop":
        hint = (
            "It has several lines, which are not left out as one row, as a quote may have joined them. Mend the "
            "file, or set 'files.options.multiLine: false' where no field has line breaks."
        )
    message = F.concat(
        F.lit("[EOS_JOB_MALFORMED_ROW] Line "),
        F.col(LINE),
        F.lit(" of "),
        F.col(FILE),
        F.lit(f" does not fit 'files.schema'. Hint: {hint}"),
    )
    # rand() keeps the optimizer from moving another filter before this one, as in jobs/runner/transform.py.
    failure = F.raise_error(message).isNull() & (F.rand() < 0.5)
    decided = F.when(~malformed(config), F.lit(True))
    if config.on_malformed == "drop":
        decided = decided.when(~F.col("value").rlike(r"[\r\n]"), F.lit(False))
    return rows.where(decided.otherwise(failure)).select(*fields, FILE, LINE)
