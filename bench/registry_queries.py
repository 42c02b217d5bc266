"""The streaming queries of mode ``registry``: a topic of orders as Avro, those that are paid, a topic of Avro."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from bench.orders import DDL, SCHEMA, register
from bench.queries import Flow, read_topic, source_options, write_stream
from spark_eos.pipelines.registry import from_registry, to_registry
from spark_eos.pipelines.registry.decoding import reading
from spark_eos.pipelines.registry.encoding import writing
from spark_eos.pipelines.registry.schemas import Schema
from spark_eos.pipelines.registry.settings import registry_settings

#: Bytes before a datum: the magic byte, and the schema's id.
PREFIX = 5
_SQL = "SELECT key, value FROM input WHERE value.paid"

#: A query's start: given the session, the broker's address, what is read and written, the registry's address, and the
#: folder of the checkpoint. The query ends when all is read.
Start = Callable[[SparkSession, str, Flow, str, str], StreamingQuery]


def start_sql(spark: SparkSession, servers: str, flow: Flow, registry: str, checkpoint: str) -> StreamingQuery:
    """Past the JVM, by SQL that DuckDB runs."""
    return _start_copy(spark, servers, flow, registry, checkpoint, _SQL)


def start_arrow(spark: SparkSession, servers: str, flow: Flow, registry: str, checkpoint: str) -> StreamingQuery:
    """Past the JVM, by a function of Arrow batches."""

    def paid(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(["key", "value"]).filter(pc.struct_field(batch["value"], "paid"))

    return _start_copy(spark, servers, flow, registry, checkpoint, paid)


def _start_copy(
    spark: SparkSession,
    servers: str,
    flow: Flow,
    registry: str,
    checkpoint: str,
    transform: str | Callable[[pa.RecordBatch], pa.RecordBatch],
) -> StreamingQuery:
    settings = registry_settings(registry)
    return spark_eos.copy(
        spark,
        source=source_options(servers, flow),
        sink={"kafka.bootstrap.servers": servers, "topic": str(flow.output)},
        transform=transform,
        decode={"value": reading(settings, f"{flow.input}-value")},
        encode={"value": writing(settings, Schema("AVRO", SCHEMA), topic=flow.output)},
        checkpoint=checkpoint,
        trigger={"availableNow": True},
    )


def start_columns(spark: SparkSession, servers: str, flow: Flow, registry: str, checkpoint: str) -> StreamingQuery:
    """Rows through Spark, by the library's columns."""
    decoded = from_registry("value", registry, topic=flow.input)
    encoded = to_registry("value", registry, topic=flow.output, schema=SCHEMA)
    return _start_rows(spark, servers, flow, checkpoint, decoded, encoded)


def start_udf(spark: SparkSession, servers: str, flow: Flow, registry: str, checkpoint: str) -> StreamingQuery:
    """Rows through Spark, by Python UDFs with fastavro, which take and return one value at a time."""
    encode_record = fastavro_encoder(b"\0" + register(registry, str(flow.output)).to_bytes(4, "big"))

    def encode(row: Row) -> bytes:
        return encode_record(row.asDict())

    # Spark would evaluate a deterministic one once for the filter, and again behind it.
    decoded = F.udf(fastavro_decoder(), DDL).asNondeterministic()("value")
    return _start_rows(spark, servers, flow, checkpoint, decoded, F.udf(encode, "BINARY")("value"))


def _start_rows(
    spark: SparkSession, servers: str, flow: Flow, checkpoint: str, decoded: Column, encoded: Column
) -> StreamingQuery:
    orders: DataFrame = read_topic(spark, servers, flow).select("key", decoded.alias("value")).where("value.paid")
    rows = orders.select("key", encoded.alias("value"))
    return write_stream(rows, servers, flow, checkpoint).trigger(availableNow=True).start()


def fastavro_decoder() -> Callable[[bytes], Any]:
    """Takes a value and returns its record, as a dictionary."""
    parsed = fastavro.parse_schema(json.loads(SCHEMA))

    def decode(value: bytes) -> Any:  # noqa: ANN401  # of JSON's types
        datum = BytesIO(value)
        datum.seek(PREFIX)
        return fastavro.schemaless_reader(datum, parsed, None)

    return decode


def fastavro_encoder(prefix: bytes) -> Callable[[dict[str, Any]], bytes]:
    """Takes a record and returns its value, which begins with the prefix."""
    parsed = fastavro.parse_schema(json.loads(SCHEMA))

    def encode(record: dict[str, Any]) -> bytes:
        datum = BytesIO()
        datum.write(prefix)
        fastavro.schemaless_writer(datum, parsed, record)
        return datum.getvalue()

    return encode
