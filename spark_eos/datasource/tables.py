"""Tables of Spark's catalog on topics: ``CREATE TABLE … USING `eos-kafka` OPTIONS (…)``.

When such a table is used, Spark hands a Python data source the table's columns, but none of its options. So a table has
them in the metadata of its columns, where Spark keeps them in the catalog. They go wherever the columns go, as into
the files of another table. So none of them may be a secret.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType, TimestampType

from spark_eos.errors import stop
from spark_eos.kafka.config.properties import is_secret
from spark_eos.options.parse import source_options
from spark_eos.options.writes import write_options
from spark_eos.source.schema import HEADERS, schema

#: Each column's metadata has the options under this key, as JSON.
_KEY = "eos-kafka"
#: With this key Spark names the format of a table that it creates; there it also adds the table's properties, and its
#: options once more, behind a prefix.
_PROVIDER, _OPTION = "provider", "option."
#: Options that make a table one to be read.
_SELECTIONS = ("assign", "subscribe", "subscribepattern")


def is_created(given: Mapping[str, str]) -> bool:
    """Return whether Spark asks for the columns of a table that it is about to create."""
    return _PROVIDER in given


def columns(given: Mapping[str, str]) -> StructType:
    """Return the columns of a table, with its options in their metadata: the source's columns, or the sink's for a
    table with the option 'topic'.

    ``given``: everything that Spark passes from CREATE TABLE. Raises OptionError for options that a table, or a query,
    cannot have.
    """
    options = {key.removeprefix(_OPTION): value for key, value in given.items() if key.startswith(_OPTION)}
    secret = next((key for key, value in options.items() if _is_secret(key, value)), None)
    if secret is not None:
        raise stop("EOS_TABLE_SECRET", option=secret)
    if "topic" in options and not any(key in options for key in _SELECTIONS):
        if "job.id" in options:
            why = "it names one write: set it on an INSERT, by WITH ('job.id' = …)"
            raise stop("EOS_OPTION_CONFLICT.remove", option="job.id", given="set", why=why)
        write_options({**options, "job.id": "of an INSERT"})
        fields = _WRITTEN
    else:
        fields = schema(source_options(options).include_headers).fields
    metadata = {_KEY: json.dumps(options, sort_keys=True)}
    return StructType([StructField(field.name, field.dataType, field.nullable, metadata) for field in fields])


_WRITTEN = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    HEADERS,
    StructField("partition", IntegerType()),
    StructField("timestamp", TimestampType()),
]


def _is_secret(key: str, value: str) -> bool:
    name = key.removeprefix("kafka.")
    return is_secret(name) or "PRIVATE KEY" in value


def options_of(columns: StructType, given: Mapping[str, str], *, writes: bool = False) -> Mapping[str, str]:
    """Return the options of a query: the table's, overridden by ``given``; without a table, ``given``. ``writes``: the
    columns are of rows to write; if the rows were read from a table, the columns still have its options, which are
    ignored.

    Raises OptionError if this seems to be a table whose options Spark has not passed on.
    """
    texts = [field.metadata[_KEY] for field in columns.fields if _KEY in (field.metadata or {})]
    tables: list[dict[str, str]] = [json.loads(text) for text in texts]
    fitting = [table for table in tables if not (writes and any(key in table for key in _SELECTIONS))]
    if fitting:
        own = fitting[0]
        lower = {key.lower() for key in given}
        return {key: value for key, value in own.items() if key.lower() not in lower} | dict(given)
    if {key.lower() for key in given} <= {"checkpointlocation", "queryname", "path"}:
        raise stop("EOS_OPTION_MISSING.table")
    return given
