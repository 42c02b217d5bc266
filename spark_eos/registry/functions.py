"""Columns of DataFrames, batch and streaming, classic and Connect: bytes with a registry's schema, and back.

What is asked of the registry by the driver is asked when the Column is made, and fixed then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from spark_eos.errors import stop
from spark_eos.registry.schemas import KIND_NAMES
from spark_eos.registry.settings import registry_settings
from spark_eos.registry.subjects import subject_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

    from spark_eos.registry.subjects import Strategy

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
    """The values of a binary column, decoded; a null stays null.

    ``registry``: its address, or its settings by name. ``subject``, or ``topic`` for the subject TOPIC-value
    (TOPIC-key with ``key``): whose schema values are read as, in the ``version`` given, or in that which is the latest
    now. ``message``: the full name of Protobuf's message, by default the first of the file. ``headers``: the column of
    headers, where schemas are named there. ``on_malformed``: a value that cannot be decoded fails the query, or is
    null.

    Raises OptionError, RegistryError, SchemaError.
    """
    from pyspark.sql.functions import col
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    from spark_eos.registry.decoding import reading

    if on_malformed not in _ON_MALFORMED:
        raise stop("EOS_OPTION_INVALID.one_of", option="on_malformed", allowed=", ".join(_ON_MALFORMED))
    name = subject_name(subject, topic, key=key)
    decoding = reading(registry_settings(registry), name, version, message=message, key=key)
    fails = on_malformed == "fail"

    def decode(values: pa.Array, named_by: pa.Array | None = None) -> pa.Array:
        found = decoding.decode(values, named_by)
        if fails and found.bad:
            raise stop("EOS_VALUE_MALFORMED.read", subject=name, reason=found.bad[min(found.bad)])
        return found.rows

    decode.__name__ = from_registry.__name__  # what plans show
    columns = [column] if headers is None else [column, headers]
    decoded: Column = arrow_udf(decode, from_arrow_type(decoding.type), ArrowUDFType.SCALAR)(
        *(col(each) if isinstance(each, str) else each for each in columns)
    )
    return decoded


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
    """A column as bytes after the id of its schema; a null stays null.

    ``registry``: its address, or its settings by name. ``subject``, or ``topic`` for the subject TOPIC-value (TOPIC-key
    with ``key``), or another ``strategy``: ``record`` and ``topic-record``. ``schema``: its text, of this ``kind`` and
    with these ``references`` (``name``, ``subject``, ``version``), which is registered now, or with
    ``auto_register=False`` has to be registered; without it, the subject's latest version is used. ``message``: the
    full name of Protobuf's message, by default the first of the file. ``on_malformed``: a row that the schema cannot
    hold fails the query, or is null.

    Raises OptionError, RegistryError, SchemaError.
    """
    from pyspark.sql.functions import col
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    from spark_eos.registry.encoding import schema_given, writing

    if on_malformed not in _ON_MALFORMED:
        raise stop("EOS_OPTION_INVALID.one_of", option="on_malformed", allowed=", ".join(_ON_MALFORMED))
    if kind not in KIND_NAMES:
        raise stop("EOS_OPTION_INVALID.one_of", option="kind", allowed=", ".join(KIND_NAMES))
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
    name, fails = encoding.registered.subject, on_malformed == "fail"

    def encode(rows: pa.Array) -> pa.Array:
        found = encoding.encode(rows)
        if fails and found.bad:
            raise stop("EOS_VALUE_MALFORMED.write", subject=name, reason=found.bad[min(found.bad)])
        return found.values

    encode.__name__ = to_registry.__name__
    encoded: Column = arrow_udf(encode, "binary", ArrowUDFType.SCALAR)(
        col(column) if isinstance(column, str) else column
    )
    return encoded
