"""`spark_eos.copy`: start a copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from spark_eos.datasource.ranges import RangeQuery
    from spark_eos.pipelines.copy.plan import CopyPlan, Function, OnMalformed
    from spark_eos.pipelines.registry.decoding import Decoding
    from spark_eos.pipelines.registry.encoding import Encoding

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
    by the sink's ``kafka.partitioner``. A ``transform`` is a function of each row: it takes a ``pyarrow.RecordBatch``
    of the source's columns, however records are cut into batches, and returns one of the sink's. A text is SQL, which
    DuckDB runs over such batches as the table ``input``. ``trigger`` are arguments of Spark's ``trigger``, such as
    ``{"availableNow": True}`` or ``{"processingTime": "1 second"}``; by default, micro-batches follow one another.
    ``on_malformed`` is for records that the transform rejects, by its column ``error``, or for which SQL fails:
    ``"fail"`` stops the query, ``"drop"`` leaves them out, ``"deadLetters"`` writes them to the sink's
    ``deadLetters.topic``. Without ``ordered``, ``minPartitions`` and ``maxRecordsPerPartition`` let several tasks read
    a partition, whose rows then lose their order. ``decode`` and ``encode``, by ``"key"`` and ``"value"``: schemas of a
    registry, by which the transform gets columns of fields instead of bytes, and returns them.

    With the option ``format``, ``sink`` is a table (``delta``, ``iceberg``), without dead letters and ``encode``, or
    ``source`` is one (``delta``). `docs/delta.md` and `docs/iceberg.md` have the options of tables.

    Returns Spark's query, started. Raises EosError for mistakes that can be detected before the start.
    """
    from spark_eos.base.frozen_settings import texts
    from spark_eos.datasource.ranges import RangeQuery
    from spark_eos.errors import stop
    from spark_eos.pipelines.copy.checks import check_trigger
    from spark_eos.pipelines.copy.source import RangeStreamReader
    from spark_eos.pipelines.copy.sql import SqlTransform
    from spark_eos.pipelines.copy.table.options import DELTA, KINDS, table_options
    from spark_eos.spi import HadoopSettings

    def refuse(why: str, **given: object) -> None:
        for argument, value in given.items():
            if value:
                raise stop("EOS_OPTION_CONFLICT.remove", option=argument, given="set", why=why)

    check_trigger(trigger or {})
    session, reads, target = HadoopSettings.from_session(spark), texts(source), texts(sink)
    writes = {**target, "checkpointLocation": checkpoint}
    function = SqlTransform(transform) if isinstance(transform, str) else transform
    named = None if function is None else name_of(function)
    is_table = str(sink.get("format", "")).lower() in KINDS
    if str(source.get("format", "")).lower() == DELTA:
        from spark_eos.pipelines.copy.cores import cores, cores_now
        from spark_eos.pipelines.copy.from_table import start as from_table
        from spark_eos.pipelines.copy.from_table.source import FileStreamReader
        from spark_eos.pipelines.copy.from_table.task import TableRows

        chosen = {"partition": partition != "same", "on_malformed": on_malformed != "fail", "ordered": not ordered}
        refuse("rows come from a table", decode=decode, encode=encode, **chosen)
        options = from_table.source_table_options(reads, session)
        tasks = cores(spark) or cores_now(spark, from_table.TASKS)
        files = from_table.planned(options, writes, session, function, named, tasks)
        query = RangeQuery(files, FileStreamReader, TableRows.writer)
        return prepared(spark, query).start(spark, checkpoint, trigger, name)
    if decode or encode:
        from spark_eos.pipelines.copy.values import SchemaTransform

        name_before = "records" if named is None else named
        function = SchemaTransform(function, name_before, decode or {}, encode or {}, to_table=is_table)
        named = function.name
    if is_table:
        from spark_eos.pipelines.copy.table import start as into_table
        from spark_eos.pipelines.copy.table.writer import to_table

        why = "rows go to a table, and it is for rows that go to topics"
        refuse(why, partition=partition != "same", encode=encode)
        rows = into_table.transform_of(function, named, on_malformed)
        table = into_table.planned(reads, table_options(target, session), checkpoint, rows)
        query = RangeQuery(table, RangeStreamReader, to_table)
        return prepared(spark, query).start(spark, checkpoint, trigger, name)
    from spark_eos.pipelines.copy.task import TopicRows

    copies = planned(session, reads, writes, function, ordered=ordered, partition=partition, on_malformed=on_malformed)
    query = RangeQuery(copies, RangeStreamReader, TopicRows.writer)
    return prepared(spark, query).start(spark, checkpoint, trigger, name)


def prepared(spark: SparkSession, query: RangeQuery) -> RangeQuery:
    """Return the query with a place for its counts, the cores of Spark, and its sink where it writes to topics."""
    from spark_eos.pipelines.copy.cores import cores
    from spark_eos.pipelines.copy.plan import ToTopics
    from spark_eos.pipelines.copy.written import of_one_query

    plan = replace(query.plan, written=of_one_query(), cores=cores(spark))
    sink = plan.sink if isinstance(plan, ToTopics) else None
    return replace(query, plan=plan, sink=sink)


def planned(
    session: Mapping[str, str],
    source: Mapping[str, str],
    sink: Mapping[str, str],
    transform: Function | None,
    *,
    ordered: bool,
    partition: str,
    on_malformed: OnMalformed,
) -> CopyPlan:
    """Return the plan, checked as far as it can be before there are tasks. ``session``: its settings of file systems.
    Writes nothing. Raises EosError."""
    import pyarrow as pa

    from spark_eos.pipelines.copy.by_key import by_key, check_rule
    from spark_eos.pipelines.copy.checks import check_copy, check_malformed, checked_ends
    from spark_eos.pipelines.copy.plan import SAME, CopyPlan
    from spark_eos.pipelines.copy.sample import check_by_sample
    from spark_eos.pipelines.copy.transforming import checked
    from spark_eos.source.schema import arrow_schema
    from spark_eos.spi import TopicWatch

    copies = transform is None and partition == SAME
    ends = checked_ends(source, sink, session, ordered=ordered, copies=copies, keeps_order=_KEEPS_ORDER)
    reads, writes = ends.source, ends.sink
    check_rule(partition, writes, has_transform=transform is not None)
    if transform is None:
        topics = TopicWatch(ends.client, reads.selection).topics().partitions
        check_copy(writes, topics, same_cluster=ends.same_cluster)
        if copies:
            return CopyPlan(reads, writes, None, ends.cluster)
        reads = replace(reads, include_headers=True)
        return CopyPlan(reads, writes, by_key(writes.topic), ends.cluster)
    empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(reads.include_headers))
    check_malformed(on_malformed, writes)
    function = checked(transform, name_of(transform), empty, writes.topic, on_malformed)
    check_by_sample(ends.client, reads, function)
    return CopyPlan(reads, writes, function, ends.cluster)


def name_of(function: Function) -> str:
    """Return the function's name for decisions. Its module and code may change: for lost rows, its results are
    compared."""
    own_name = getattr(function, "name", None)
    if isinstance(own_name, str):  # SQL has one, and so have functions with decoding and encoding
        return own_name
    name: str = (function if hasattr(function, "__qualname__") else type(function)).__qualname__
    return name
