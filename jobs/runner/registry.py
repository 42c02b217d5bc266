"""Keys and values with the schemas of a registry: the sections of the config file, and the columns made by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.pipelines.registry.schemas import KIND_NAMES
from spark_eos.pipelines.registry.settings import RegistrySettings, registry_settings
from spark_eos.pipelines.registry.subjects import subject_name
from spark_eos.sink.schema import Columns

from .columns import PARSED
from .models import Section
from .noted_schemas import NotedSchemas, chosen
from .values import AtLeastOne, Rejected, Text, invalid, missing

if TYPE_CHECKING:
    from spark_eos.pipelines.registry.decoding import Decoding
    from spark_eos.pipelines.registry.encoding import Encoding

#: A column beside `PARSED`: why the value or the key cannot be decoded, or null.
UNFIT = "_unfit"
_KEY = "_key"


def _settings(given: object) -> RegistrySettings:
    if isinstance(given, str):
        return registry_settings(given)
    if not isinstance(given, Mapping) or not all(isinstance(value, str) for value in given.values()):
        raise Rejected("is not an address or settings.", "Use {url: http://localhost:8081}.")
    return registry_settings(given)


#: Settings of a registry, by their names; prints no secrets.
RegistryProperties = Annotated[RegistrySettings, BeforeValidator(_settings)]


class RegistryColumn(Section, arbitrary_types_allowed=True):
    """Format of keys or values, and the registry with their schemas."""

    #: The kind of the schemas.
    format: Literal["avro", "protobuf", "json-schema"]
    #: [Settings of the registry](registry.md#settings), of which `url` is required.
    registry: RegistryProperties
    #: The subject; by default TOPIC-value or TOPIC-key.
    subject: Text | None = None
    #: The full name of Protobuf's message; by default the first of the file.
    message: Text | None = None

    def extras(self) -> list[str]:
        """See `Section.extras`."""
        return ["registry"]


class Parsed(RegistryColumn):
    """Format in which keys or values are read."""

    #: The version of the subject that all are read as. By default the latest one at the first start, which
    #: [stays](job.md#schema-registry).
    version: AtLeastOne | None = None

    def decoding(self, subject: str, version: int | Literal["latest"], *, key: bool) -> Decoding:
        """Return the registry's decoding. Raises RegistryError, SchemaError."""
        from spark_eos.pipelines.registry.decoding import reading  # imports Arrow, only for a registry

        decoding = reading(self.registry, subject, version, message=self.message, key=key)
        _check_kind(self.format, decoding.registered.schema.kind, subject)
        return decoding


class EncodedColumn(RegistryColumn):
    """Format in which keys or values are written."""

    #: The text of the schema; by default the latest version of the subject is used.
    text: Text | None = Field(None, alias="schema")
    #: Whether `schema` is registered at the start, where it is not there yet.
    auto_register: bool = True

    @model_validator(mode="after")
    def _registers(self) -> Self:
        if not self.auto_register and self.text is None:
            raise Rejected("is for a 'schema' that is given.", "Remove it, or set 'schema'.", ["autoRegister"])
        return self

    def encoding(self, topic: str | None, *, key: bool) -> Encoding:
        """Return the encoding by the registry, where the schema is registered. ``topic``: the one that is written.
        Raises OptionError, RegistryError, SchemaError."""
        from spark_eos.pipelines.registry.encoding import schema_given, writing

        given = None if self.text is None else schema_given(self.registry, KIND_NAMES[self.format], self.text)
        encoding = writing(
            self.registry,
            given,
            subject=self.subject,
            topic=topic,
            key=key,
            message=self.message,
            auto_register=self.auto_register,
        )
        _check_kind(self.format, encoding.registered.schema.kind, encoding.registered.subject)
        return encoding


def _check_kind(name: str, kind: str, subject: str) -> None:
    if KIND_NAMES[name] != kind:
        problem = f"is not the kind of the schema that subject '{subject}' has, which is {kind}"
        raise invalid("format", problem, "Set the format to that kind, or another subject")


@dataclass(frozen=True)
class ColumnCodecs:
    """Codecs of keys and values, as the driver has fixed them; None for bytes that stay as they are."""

    value_in: Decoding | None = None
    key_in: Decoding | None = None
    value_out: Encoding | None = None
    key_out: Encoding | None = None

    @property
    def decodes(self) -> bool:
        return bool(self.decode)

    @property
    def decode(self) -> dict[str, Decoding]:
        """Decoders by ``key`` and ``value``, as far as they are decoded."""
        return {name: one for name, one in (("key", self.key_in), ("value", self.value_in)) if one is not None}

    @property
    def encode(self) -> dict[str, Encoding]:
        """Encoders by ``key`` and ``value``, as far as they are encoded."""
        return {name: one for name, one in (("key", self.key_out), ("value", self.value_out)) if one is not None}


def checked(source: DataFrame, columns: ColumnCodecs, *, letters: bool) -> DataFrame:
    """Add `PARSED`, `_KEY` and `UNFIT` to the source. ``letters``: records that cannot be decoded are read again, for
    dead letters."""
    from spark_eos.pipelines.registry.columns import WHY, decoded_or_why

    headers = F.col("headers") if "headers" in source.columns else None
    rows, reasons = source, []
    for name, column, decoding in (("value", PARSED, columns.value_in), ("key", _KEY, columns.key_in)):
        if decoding is not None:
            rows = rows.withColumn(column, decoded_or_why(decoding, F.col(name), headers, twice=letters))
            reasons.append(F.when(F.col(column)[WHY].isNotNull(), F.concat(F.lit(f"the {name}: "), F.col(column)[WHY])))
    return rows.withColumn(UNFIT, F.coalesce(*reasons))


def parsed(rows: DataFrame, source: DataFrame, columns: ColumnCodecs) -> DataFrame:
    """Return the source's columns of checked rows, with decoded keys and values instead of their bytes."""
    from spark_eos.pipelines.registry.columns import ROW

    made = {name: F.col(name) for name in source.columns}
    for name, column, decoding in (("value", PARSED, columns.value_in), ("key", _KEY, columns.key_in)):
        if decoding is not None:
            made[name] = F.col(column)[ROW]
    return rows.select(*(column.alias(name) for name, column in made.items()))


def encoded_rows(rows: DataFrame, columns: ColumnCodecs) -> DataFrame:
    """Return the rows with key and value as bytes. Without a column ``value``, the columns that are none of the sink's
    are its fields. Raises EosError where rows of this type cannot be written."""
    rows = _without_old_headers(rows, columns)
    if columns.value_out is None and columns.key_out is None:
        return rows
    from spark_eos.pipelines.registry.columns import check_type, encoded

    if columns.value_out is not None and "value" not in rows.columns:
        fields = [name for name in rows.columns if name not in Columns.BESIDE_VALUE]
        rows = rows.withColumn("value", F.struct(*fields)).drop(*fields)
    for name, encoding in (("value", columns.value_out), ("key", columns.key_out)):
        if encoding is not None:
            if name not in rows.columns:
                raise invalid(
                    "transform",
                    f"returns no column '{name}', which shall be encoded",
                    "Select it, or remove its section",
                )
            check_type(encoding, rows.schema[name].dataType)
            rows = rows.withColumn(name, encoded(encoding, F.col(name), fails=True))
    return rows


def _without_old_headers(rows: DataFrame, columns: ColumnCodecs) -> DataFrame:
    """See `spark_eos.pipelines.copy.values.SchemaTransform`."""
    names = sorted({*columns.decode, *columns.encode})
    if not names or "headers" not in rows.columns:
        return rows
    from spark_eos.pipelines.registry.wire import HEADERS

    old = [HEADERS[name] for name in names]
    # A header without a key is none of them, and not left out.
    kept = F.filter("headers", lambda header: ~F.coalesce(header["key"].isin(old), F.lit(False)))
    return rows.withColumn("headers", kept)


def is_fit() -> Column:
    """Return a column that is true for checked rows that fit their schemas, else false; never null."""
    return F.col(UNFIT).isNull()


def decodings(
    location: str, settings: HadoopSettings, topic: str | None, sections: Mapping[str, Parsed | None]
) -> dict[str, Decoding]:
    """Return the readers of columns, by ``sections`` for key and value: as the checkpoint notes it, which is written
    where that is new. ``topic``: the only one that is read. Raises OptionError, RegistryError, SchemaError,
    CheckpointError."""
    given = {column: section for column, section in sections.items() if section is not None}
    if not given:
        return {}
    noted = NotedSchemas(location, settings)
    before, progress = noted.read(), noted.progress()
    readers = {}
    for column, section in given.items():
        key = column == "key"
        subject = subject_name(section.subject, topic, key=key)
        readers[column] = chosen(column, subject, section.version, partial(section.decoding, key=key), before, progress)
    noted.add([note for _, note in readers.values()])
    return {column: decoding for column, (decoding, _) in readers.items()}


def check_topic(topic: str | None, column: RegistryColumn | None, key: str) -> None:
    """Check that, without a subject, there is one topic to name it by. Raises Rejected."""
    if column is not None and column.subject is None and topic is None:
        raise missing([key, "subject"], "is missing, as there is not one topic to name it by.", "Set it.")
