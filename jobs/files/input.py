"""The section ``files`` of an ingest, and the rows of its files as columns."""

from __future__ import annotations

import fnmatch
import re
import string
from typing import Literal, Self

from pydantic import Field, model_validator
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.pipelines.files.folder import HIDDEN
from spark_eos.pipelines.files.notes import Splits
from spark_eos.pipelines.files.parquet import parquet_schema, spark_schema
from spark_eos.pipelines.files.source import FILE, FILES_FORMAT, LINE, Form, options_of

from ..runner.columns import PARSED, in_filter, raised, struct_of, with_fields
from ..runner.models import Section
from ..runner.transforms import check_schema
from ..runner.values import AtLeastOne, Interval, Rejected, Text, seconds_of, unknown

_OF_BOTH = "dateFormat timestampFormat timestampNTZFormat locale"
#: Options of Spark's parsers that an ingest takes. Others would leave rows out, or read them differently at a replay.
OPTIONS = {
    "csv": "header multiLine delimiter quote escape nullValue emptyValue nanValue positiveInf negativeInf "
    f"ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace {_OF_BOTH}",
    "json": f"allowUnquotedFieldNames allowSingleQuotes allowNumericLeadingZeros primitivesAsString {_OF_BOTH}",
    "text": "",
    "parquet": "",
}
#: Of these, the first is for us alone, and the second asks Spark's parser for more than one record.
_OURS = ("header", "multiLine")
#: Characters that line breaks and Spark's parser need for themselves.
_NOT_SPECIAL = "\r\n\0"
_UNCHANGED_FOR = "10 seconds"
#: Syntax of other programs' patterns → how to write it here.
_NOT_IN_PATTERNS = {
    "/": "It is a pattern of names, without folders: files in all folders below 'files.path' are taken.",
    "{": "There are no alternatives: use *, ? and […], or one ingest for each pattern. A brace itself is [{].",
    "\\": "A special letter itself is written in brackets, as in [*].",
}
_HIDDEN_HINT = "Use *, ? and […]. Files whose names begin with a dot or an underscore are left out."


class Files(Section, extra="allow"):
    """Files to take, and their format. Further keys are options of Spark's parser."""

    __pydantic_extra__: dict[str, str]

    #: The folder, on any [file system](sink.md#where-the-checkpoint-is) that checkpoints may be on: a path, `s3a://…`, `hdfs://…`.
    path: Text
    #: Format of the files; json: one value on each line. Further keys are [options](ingest.md#options) of the format.
    format: Literal["csv", "json", "parquet", "text"]
    #: Pattern of file names, with `*`, `?` and `[…]`.
    pattern: Text = "*"
    #: Required for csv, and for json with a `transform` by Spark: DDL such as `id BIGINT, name STRING`. Parquet files
    #: bring their own.
    ddl: Text | None = Field(None, alias="schema")
    #: How to handle a record of csv or json that is [malformed](ingest.md#malformed-records), or a row that a transform
    #: past the JVM [rejects](ingest.md#past-the-jvm).
    on_malformed: Literal["fail", "drop"] = "fail"
    #: A file is [complete](ingest.md#complete-files) when it has not changed for so long; `10 seconds` by default.
    unchanged_for: Interval | None = None
    #: Instead: a file is complete when another one with its name and this ending is beside it.
    marker: Text | None = None
    #: Whether to fail if a file that was taken has other content now, or to take it again.
    on_changed: Literal["fail", "take"] = "fail"
    #: Whether to fail if a file has the same content as another one, or to take it.
    on_copy: Literal["fail", "take"] = "fail"
    #: Maximum number of files in a micro-batch.
    max_files_per_trigger: AtLeastOne = 100
    #: Maximum number of bytes in a micro-batch; a larger file gets a micro-batch of its own.
    max_bytes_per_trigger: AtLeastOne | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.format != "json":  # whose lines may go on as they are: only the job knows
            check_schema(self.ddl, required=self.format == "csv")
        _check_pattern(self.pattern)
        if self.marker is not None and self.unchanged_for is not None:
            raise Rejected("is not for files with a marker.", "Keep one of them.", ["unchangedFor"])
        known = OPTIONS[self.format].split()
        for name in self.options:
            if name not in known:
                raise unknown(name, [*self.key_names(), *known], [name])
        for name in ("timestampFormat", "timestampNTZFormat"):
            if "SSSSSSS" in self.options.get(name, ""):
                raise Rejected("has more digits of a second than a timestamp.", "Use SSSSSS at most.", [name])
        if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*", self.options.get("locale", "en")):
            raise Rejected("is not a locale.", "Write it as de-DE, with a hyphen.", ["locale"])
        if self.format == "csv":
            self._check_csv()
        return self

    @property
    def options(self) -> dict[str, str]:
        """Options of Spark's parser."""
        return self.__pydantic_extra__

    @property
    def unchanged_s(self) -> float:
        """For how many seconds a file has to be unchanged."""
        return 0.0 if self.marker is not None else seconds_of(self.unchanged_for or _UNCHANGED_FOR)

    def _check_csv(self) -> None:
        for name in ("quote", "delimiter", "escape"):
            text = self.options.get(name, "x")
            if len(text.encode()) != 1 or text in _NOT_SPECIAL:
                hint = "Use one ASCII character, and no line break."
                raise Rejected("is not one byte.", hint, [name])
        if self._delimiter in (self._quote, "\\", self.options.get("escape")) or self._quote in " \t\\":
            hint = "Use different characters: a backslash is for 'escape' alone, and a space or tab for 'delimiter'."
            raise Rejected("does not fit 'quote' and 'escape'.", hint, ["delimiter"])
        if self.options.get("escape", self._quote) not in (self._quote, "\\"):
            hint = "Leave it out where quotes are doubled, which is the default, or use '\\\\'."
            raise Rejected("is neither the quote nor a backslash.", hint, ["escape"])
        for name in ("header", "multiLine", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"):
            if self.options.get(name, "true").lower() not in ("true", "false"):
                raise Rejected("is neither true nor false.", "Use one of them.", [name])

    @property
    def _quote(self) -> str:
        return self.options.get("quote", '"')

    @property
    def _delimiter(self) -> str:
        return self.options.get("delimiter", ",")

    def _is_set(self, option: str, default: str) -> bool:
        return self.options.get(option, default).lower() == "true"

    def struct(self) -> StructType:
        """Return the schema of csv and json. Raises ConfigError."""
        return struct_of(str(self.ddl), "files.schema", (FILE, LINE))

    def form(self) -> Form:
        """Return settings for the tasks. Raises ConfigError."""
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


def _check_pattern(pattern: str) -> None:
    """Check that the name of a file can match the pattern, as `fnmatch` reads it."""
    first = re.match(r"\[!?\]?[^]]*\]|.", pattern, re.DOTALL)
    assert first is not None  # a text that is not empty
    letters = {*string.printable, *first[0]} - {"/", *HIDDEN}
    if not any(fnmatch.fnmatchcase(letter, first[0]) for letter in letters) or "(?!)" in fnmatch.translate(pattern):
        raise Rejected("matches no file that is taken.", _HIDDEN_HINT, ["pattern"])
    for sign, hint in _NOT_IN_PATTERNS.items():
        if sign in re.sub(r"\[!?\]?[^]]*\]", "", pattern):
            raise Rejected("matches no name that a file is likely to have.", hint, ["pattern"])


def rows_of(spark: SparkSession, config: Files, splits: Splits, settings: HadoopSettings) -> DataFrame:
    """Return rows that the tasks read: one for each record, not yet parsed. Raises FileError for columns that Spark has
    no type for."""
    reader = spark.read.format(FILES_FORMAT).options(**options_of(config.form(), splits))
    if config.format == "parquet":
        file = splits[0][0]
        struct = spark_schema(file, parquet_schema(file, settings))
        reader = reader.schema(struct.add(FILE, StringType()).add(LINE, LongType()))
    return reader.load()


def parsed(rows: DataFrame, config: Files) -> DataFrame:
    """Return the rows of the data source; of csv and json with the column `PARSED`, null where a row is malformed."""
    if config.format in ("text", "parquet"):
        return rows
    options = {name: value for name, value in config.options.items() if name not in _OURS}
    return with_fields(rows, F.col("value"), config.format, str(config.ddl), options)


def malformed(config: Files) -> Column:
    """Select the rows of `parsed` that do not fit the schema."""
    return F.lit(False) if config.format in ("text", "parquet") else F.col(PARSED).isNull()


def accepted(rows: DataFrame, config: Files) -> DataFrame:
    """Return the well-formed rows of `parsed`, with the fields of their files as columns. A malformed row is an error
    with ``onMalformed: fail``; with ``drop`` only if it has several lines: good ones may be among them, behind a stray
    quote."""
    if config.format in ("text", "parquet"):
        return rows
    fields = [F.col(PARSED)[name].alias(name) for name in config.struct().names]
    position = {"line": F.col(LINE), "file": F.col(FILE)}
    error = raised("EOS_JOB_MALFORMED_ROW.line", **position)
    if config.on_malformed == "drop":
        error = raised("EOS_JOB_MALFORMED_ROW.lines", **position)
    decided = F.when(~malformed(config), F.lit(True))
    if config.on_malformed == "drop":
        decided = decided.when(~F.col("value").rlike(r"[\r\n]"), F.lit(False))
    return rows.where(decided.otherwise(in_filter(error))).select(*fields, FILE, LINE)
