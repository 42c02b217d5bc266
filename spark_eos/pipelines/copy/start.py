"""`spark_eos.copy`: start a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from spark_eos.pipelines.copy.plan import CopyPlan, Function, OnMalformed
    from spark_eos.pipelines.copy.source import CopyDataSource
    from spark_eos.pipelines.registry.decoding import Decoding
    from spark_eos.pipelines.registry.encoding import Encoding

_NAME = "eos-kafka-copy"
_KEEPS_ORDER = "Remove it, or call spark_eos.copy with ordered=False."


def copy(
    spark: SparkSession,
    *,
    source: Mapping[str, object],
    sink: Mapping[str, object],
    checkpoint: str,
    transform: Function | str | None = None,
    trigger: Mapping[str, object] | None = None,
    name: str | None = None,
    ordered: bool = True,
    partition: str = "same",
    on_malformed: OnMalformed = "fail",
    decode: Mapping[str, Decoding] | None = None,
    encode: Mapping[str, Encoding] | None = None,
) -> StreamingQuery:
    """Start a query from topics to topics or a table (Delta, Iceberg), or from a Delta table to topics, exactly once,
    whose rows never pass through the JVM.

    ``source`` has the options of ``readStream.format("eos-kafka")``, ``sink`` those of ``writeStream``. Without a
    ``transform``, records are copied as they are, each to the partition of the same number: of the topic that the sink
    names, or of that with the same name in another cluster; with ``partition="key"``, to the one that its key chooses,
    by the sink's ``kafka.partitioner``. A ``transform`` is a function of each row: it takes a
    ``pyarrow.RecordBatch`` of the source's columns, however records are cut into batches, and returns one of the
    sink's. A text is SQL, which DuckDB runs over such batches as the table ``input`` (`spark_eos.pipelines.copy.sql`).
    ``trigger`` are arguments of Spark's ``trigger``: ``{"availableNow": True}`` or ``{"processingTime": "…"}``.
    ``on_malformed``: what becomes of records that the transform rejects, by its column ``error``, or for which SQL
    fails: ``"fail"`` stops the query, ``"drop"`` leaves them out, ``"deadLetters"`` writes them to the sink's
    ``deadLetters.topic``. ``ordered``: whether the rows of a source partition keep their order; without,
    ``minPartitions`` lets several tasks read a partition. ``decode`` and ``encode``, by ``"key"`` and ``"value"``:
    schemas of a registry, by which the transform gets columns of fields instead of bytes, and returns them.

    With the option ``format`` = ``delta`` or ``iceberg``, ``sink`` is a table, whose columns are those that the
    transform returns, or the source's. There are no dead letters then, and nothing is encoded. With ``format`` =
    ``delta``, ``source`` is a table: the query writes its appended rows, or its changes, of which the transform also
    gets ``_change_type`` and ``_commit_version``. `docs/copy.md` has the options of tables.

    Returns Spark's query, started. Raises EosError for what can be known before.
    """
    from spark_eos.errors import stop
    from spark_eos.pipelines.copy.checks import check_trigger
    from spark_eos.pipelines.copy.from_table.start import from_table
    from spark_eos.pipelines.copy.source import CopyDataSource
    from spark_eos.pipelines.copy.sql import SqlTransform
    from spark_eos.pipelines.copy.table.options import DELTA, KINDS
    from spark_eos.pipelines.copy.table.start import to_table, transform_of
    from spark_eos.spi import HadoopSettings

    check_trigger(trigger or {})
    is_table = str(sink.get("format", "")).lower() in KINDS
    function = SqlTransform(transform) if isinstance(transform, str) else transform
    if str(source.get("format", "")).lower() == DELTA:
        chosen = {"partition": partition != "same", "on_malformed": on_malformed != "fail", "ordered": not ordered}
        for argument, given in {"decode": decode, "encode": encode, **chosen}.items():
            if given:
                raise stop("EOS_OPTION_CONFLICT.remove", option=argument, given="set", why="rows come from a table")
        writes = texts({**sink, "checkpointLocation": checkpoint})
        known_as = None if function is None else name_of(function)
        return from_table(spark, texts(source), writes, function, known_as, checkpoint, trigger, name)
    if decode or encode:
        from spark_eos.pipelines.copy.values import SchemaTransform

        name_before = "records" if function is None else name_of(function)
        function = SchemaTransform(function, name_before, decode or {}, encode or {}, to_table=is_table)
    if is_table:
        for argument, given in {"partition": partition != "same", "encode": encode}.items():
            if given:
                raise stop(
                    "EOS_OPTION_CONFLICT.remove",
                    option=argument,
                    given="set",
                    why="rows go to a table, and it is for rows that go to topics",
                )
        named = None if function is None else name_of(function)
        return to_table(
            spark, texts(source), texts(sink), checkpoint, trigger, name, transform_of(function, named, on_malformed)
        )
    plan = planned(
        HadoopSettings.from_session(spark),
        source,
        {**sink, "checkpointLocation": checkpoint},
        function,
        ordered=ordered,
        partition=partition,
        on_malformed=on_malformed,
    )
    return started(spark, plan, CopyDataSource, checkpoint, trigger, name)


def started(
    spark: SparkSession,
    plan: CopyPlan,
    base: type[CopyDataSource],
    checkpoint: str,
    trigger: Mapping[str, object] | None,
    name: str | None,
) -> StreamingQuery:
    """The query of a plan, with a data source of its own, made from ``base``."""
    from spark_eos.pipelines.copy.cores import cores
    from spark_eos.pipelines.copy.query import start_ranges
    from spark_eos.sink.ended import remember

    query = start_ranges(spark, replace(plan, cores=cores(spark)), base, _NAME, checkpoint, trigger, name)
    remember(str(query.runId), plan.sink)
    return query


def planned(
    session: Mapping[str, str],
    source: Mapping[str, object],
    sink: Mapping[str, object],
    transform: Function | None,
    *,
    ordered: bool,
    partition: str,
    on_malformed: OnMalformed,
) -> CopyPlan:
    """What the tasks need, checked as far as it can be before there are any. ``session``: its settings of file systems.
    Writes nothing. Raises EosError."""
    import pyarrow as pa

    from spark_eos.pipelines.copy.by_key import by_key, check_rule
    from spark_eos.pipelines.copy.checks import check_copy, check_malformed, checked_ends
    from spark_eos.pipelines.copy.plan import SAME, CopyPlan
    from spark_eos.pipelines.copy.sample import check_by_sample
    from spark_eos.pipelines.copy.transforming import checked
    from spark_eos.source.schema import arrow_schema
    from spark_eos.spi import TopicWatch, broker_client

    copies = transform is None and partition == SAME
    ends = checked_ends(
        texts(source),
        texts(sink),
        session,
        ordered=ordered,
        copies=copies,
        keeps_order=_KEEPS_ORDER,
    )
    reads, writes = ends.source, ends.sink
    check_rule(partition, writes, copies=transform is None)
    if transform is None:
        topics = TopicWatch(broker_client(reads.kafka), reads.selection).topics().partitions
        check_copy(writes, topics, same_cluster=ends.same_cluster)
        if copies:
            return CopyPlan(reads, writes, ends.cluster, None, ordered)
        reads = replace(reads, include_headers=True)
        return CopyPlan(reads, writes, ends.cluster, by_key(writes.topic), ordered)
    empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(reads.include_headers))
    check_malformed(on_malformed, writes)
    function = checked(transform, name_of(transform), empty, writes.topic, on_malformed)
    check_by_sample(reads, function)
    return CopyPlan(reads, writes, ends.cluster, function, ordered)


def texts(options: Mapping[str, object]) -> dict[str, str]:
    """The options as texts, in the form that Spark's ``options`` takes."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in options.items()
        if value is not None
    }


def name_of(function: Function) -> str:
    """The name by which a decision knows the function. Its module and code may change: what it makes of lost rows is
    compared."""
    own_name = getattr(function, "name", None)
    if isinstance(own_name, str):  # of SQL, and of what decodes and encodes around a function
        return own_name
    name: str = (function if hasattr(function, "__qualname__") else type(function)).__qualname__
    return name
