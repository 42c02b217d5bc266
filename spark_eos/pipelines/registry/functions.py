"""Functions of Columns that decode and encode bytes with a registry's schema, for batch and streaming DataFrames, Spark
classic and Connect.

The driver looks up its schemas when the Column is made, not when the query runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from spark_eos.errors import invalid_option
from spark_eos.pipelines.registry.schemas import KIND_NAMES
from spark_eos.pipelines.registry.settings import registry_settings
from spark_eos.pipelines.registry.subjects import subject_name

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_eos.pipelines.registry.subjects import Strategy

OnMalformed = Literal["fail", "null"]
_ON_MALFORMED = ("fail", "null")


def from_registry(
    column: str | Column,
    registry: str | Mapping[str, object],
    *,
    subject: str | None = None,
    topic: str | None = None,
    version: int | Literal["latest"] = "latest",
    key: bool = False,
    message: str | None = None,
    headers: str | Column | None = None,
    on_malformed: OnMalformed = "fail",
) -> Column:
    """Return the values of a binary column, decoded; a null stays null.

    ``registry``: its address, or its settings by name. Values are read as the schema of ``subject``, or with ``topic``
    of the subject TOPIC-value (TOPIC-key with ``key``), in this ``version``; "latest" is the latest when the Column is
    made. ``message``: the full name of a Protobuf message, by default the first in the file. ``headers``: the column of
    headers, if producers write schema ids to headers. ``on_malformed``: whether a value that cannot be decoded fails
    the query, or becomes null.

    Raises OptionError, RegistryError, SchemaError.
    """
    from pyspark.sql.functions import col

    from spark_eos.pipelines.registry.columns import decoded
    from spark_eos.pipelines.registry.decoding import reading

    _check_one_of("on_malformed", on_malformed, _ON_MALFORMED)
    name = subject_name(subject, topic, key=key)
    decoding = reading(registry_settings(registry), name, version, message=message, key=key)
    values = col(column) if isinstance(column, str) else column
    named_by = col(headers) if isinstance(headers, str) else headers
    return decoded(decoding, values, named_by, fails=on_malformed == "fail")


def to_registry(
    column: str | Column,
    registry: str | Mapping[str, object],
    *,
    subject: str | None = None,
    topic: str | None = None,
    strategy: Strategy = "topic",
    schema: str | None = None,
    kind: Literal["avro", "protobuf", "json-schema"] = "avro",
    references: Sequence[Mapping[str, object]] = (),
    key: bool = False,
    message: str | None = None,
    auto_register: bool = True,
    on_malformed: OnMalformed = "fail",
) -> Column:
    """Return a column encoded as bytes, after its schema's id; a null stays null.

    ``registry``: its address, or its settings by name. The subject is ``subject``, or with ``topic`` TOPIC-value
    (TOPIC-key with ``key``), or by another ``strategy``, ``record`` or ``topic-record``. ``schema``: the text of a
    schema of this ``kind``, with these ``references`` (``name``, ``subject``, ``version``); it is registered when the
    Column is made, or with ``auto_register=False`` has to be registered already. Without a ``schema``, the subject's
    latest version is used. ``message``: the full name of a Protobuf message, by default the first in the file.
    ``on_malformed``: whether a row that the schema cannot hold fails the query, or becomes null.

    Raises OptionError, RegistryError, SchemaError.
    """
    from pyspark.sql.functions import col

    from spark_eos.pipelines.registry.columns import encoded
    from spark_eos.pipelines.registry.encoding import schema_given, writing

    _check_one_of("on_malformed", on_malformed, _ON_MALFORMED)
    _check_one_of("kind", kind, KIND_NAMES)
    settings = registry_settings(registry)
    given = None if schema is None else schema_given(settings, KIND_NAMES[kind], schema, references)
    encoding = writing(
        settings,
        given,
        subject=subject,
        topic=topic,
        strategy=strategy,
        key=key,
        message=message,
        auto_register=auto_register,
    )
    return encoded(encoding, col(column) if isinstance(column, str) else column, fails=on_malformed == "fail")


def _check_one_of(option: str, value: str, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise invalid_option(option, f"set to another value than these: {', '.join(allowed)}", "one of them")
