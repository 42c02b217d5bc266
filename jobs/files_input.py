"""The section ``files`` of an ingest, and the rows of its files as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.errors import ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_eos.errors import ConfigError
from spark_eos.ingest.source import FILE, LINE, Form
from spark_eos.kafka.config.properties import KafkaProperties

from .checks import check_interval, seconds_of
from .config import Rejected

_OF_BOTH = ("dateFormat", "timestampFormat", "timestampNTZFormat", "locale")
#: What may be said to Spark's parsers. The others would leave rows out, or read them in another way from day to day.
OPTIONS: dict[str, tuple[str, ...]] = {
    "csv": (
        *(
            "header",
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
_CORRUPT, _PARSED = "_malformed", "_parsed"


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
        for name in ("quote", "delimiter", "escape"):
            if len(self.options.get(name, "x").encode()) != 1:
                raise Rejected("WRONG_VALUE", "is not one byte.", "Use one ASCII character.", ["options", name])
        if self.options.get("escape", '"') not in ('"', "\\"):
            hint = "Use '\"' for quotes that are doubled, which is the default, or '\\\\'."
            raise Rejected("WRONG_VALUE", "is neither a quote nor a backslash.", hint, ["options", "escape"])
        for field, key in (("max_files_per_trigger", "maxFilesPerTrigger"), ("tasks", "tasks")):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise Rejected("WRONG_VALUE", "is below 1.", "Use a whole number of at least 1.", [key])

    @property
    def header(self) -> bool:
        return self.options.get("header", "false") == "true"

    def struct(self) -> StructType:
        """The schema of csv and json. Raises ConfigError."""
        try:
            struct = StructType.fromDDL(str(self.schema))
        except ParseException as error:
            raise _bad_schema(f"Spark rejects it: {str(error).strip().partition(chr(10))[0].rstrip(';')}") from None
        taken = {FILE, LINE, _CORRUPT, _PARSED}
        if not isinstance(struct, StructType) or {name.lower() for name in struct.names} & taken:
            raise _bad_schema(f"it has to name fields, and none of {', '.join(sorted(taken))}.")
        return struct

    def form(self) -> Form:
        """What the tasks have to know. Raises ConfigError."""
        if self.format != "csv":
            return Form(parquet=self.format == "parquet", blank=self.format == "text")
        return Form(
            quote=self.options.get("quote", '"'),
            backslash=self.options.get("escape") == "\\",
            header=tuple(self.struct().names) if self.header else (),
            delimiter=self.options.get("delimiter", ","),
        )


def _bad_schema(why: str) -> ConfigError:
    return ConfigError(
        "EOS_CONFIG_SCHEMA",
        f"'files.schema' cannot be used: {why}",
        hint="Use DDL: id BIGINT, name STRING.",
        key="files.schema",
    )


def parsed(rows: DataFrame, config: FilesConfig) -> DataFrame:
    """The rows of the data source, with the fields of their files as columns."""
    if config.format in ("text", "parquet"):
        return rows
    struct = config.struct()
    options = {name: value for name, value in config.options.items() if name != "header"}
    options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parse = F.from_json if config.format == "json" else F.from_csv
    if config.format == "csv":
        options.setdefault("escape", '"')
    read = rows.withColumn(_PARSED, parse(F.col("value"), f"{config.schema}, {_CORRUPT} STRING", options))
    fields = [F.col(_PARSED)[name].alias(name) for name in struct.names]
    return _accepted(read, config).select(*fields, *_places())


def _places() -> Sequence[str]:
    return FILE, LINE


def _accepted(read: DataFrame, config: FilesConfig) -> DataFrame:
    fits = F.col(_PARSED).isNotNull() & F.col(_PARSED)[_CORRUPT].isNull()
    if config.on_malformed == "drop":
        return read.where(fits)
    message = F.concat(
        F.lit("[EOS_JOB_MALFORMED_ROW] Line "),
        F.col(LINE),
        F.lit(" of "),
        F.col(FILE),
        F.lit(" does not fit 'files.schema'. Hint: Mend the schema, or leave such rows out by 'onMalformed: drop'."),
    )
    # rand() keeps the optimizer from moving another filter before this one, as in jobs/transform.py.
    failure = F.raise_error(message).isNull() & (F.rand() < 0.5)
    return read.where(F.when(fits, F.lit(True)).otherwise(failure))
