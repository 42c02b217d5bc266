"""The start of a query from topics to a table: options, the table, and whether table and checkpoint belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from spark_eos.checkpoint.settings import HadoopSettings, setting_name
from spark_eos.errors import stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from spark_eos.copy.table.plan import TablePlan

#: The value of the sink's option ``format`` for a Delta table.
DELTA = "delta"
_FORMAT = "eos-kafka-table"
_OPTIONS = ("format", "path", "partitionBy", "afterRestore")
#: Prefix of the properties of a table that is created.
_PROPERTY = "delta."
_NO_SETTINGS = HadoopSettings()


@dataclass(frozen=True)
class TableOptions:
    """The sink's options for a table. ``partition_by`` and ``properties`` are for one that is created;
    ``after_restore``: the version of a RESTORE after which the query goes on; ``storage``: settings ``fs.…``."""

    path: str
    partition_by: tuple[str, ...] = ()
    after_restore: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    storage: HadoopSettings = _NO_SETTINGS


def table_options(raw: Mapping[str, str], session: Mapping[str, str]) -> TableOptions:
    """Parse the sink's options. ``session``: its settings of file systems. Raises OptionError."""
    from spark_eos.options.values import parse_batch, parse_text

    storage, properties, given = dict(session), {}, {}
    names = {name.lower(): name for name in _OPTIONS}
    for key, value in raw.items():
        setting = setting_name(key)
        if setting is not None:
            storage[setting] = value
        elif key.startswith(_PROPERTY):
            properties[key] = value
        elif key.lower() in names:
            given[names[key.lower()]] = value
        else:
            raise stop("EOS_OPTION_UNKNOWN.table", option=key, names=", ".join(_OPTIONS))
    if "path" not in given:
        raise stop("EOS_OPTION_MISSING.table_path")
    columns = tuple(filter(None, (name.strip() for name in given.get("partitionBy", "").split(","))))
    restored = given.get("afterRestore")
    return TableOptions(
        parse_text("path", given["path"]),
        columns,
        None if restored is None else parse_batch("afterRestore", restored),
        properties,
        HadoopSettings(storage),
    )


def to_table(
    spark: SparkSession,
    source: Mapping[str, str],
    sink: Mapping[str, str],
    checkpoint: str,
    trigger: Mapping[str, object] | None,
    name: str | None,
) -> StreamingQuery:
    """Start a query from topics to a table. See `spark_eos.copy`. Raises EosError for what can be known before."""
    from spark_eos.checkpoint.settings import of_session
    from spark_eos.copy.query import start_ranges
    from spark_eos.copy.table.source import TableDataSource
    from spark_eos.copy.written import of_one_query

    plan = planned(source, table_options(sink, of_session(spark)), checkpoint)
    noting = replace(plan, written=of_one_query())
    return start_ranges(spark, noting, TableDataSource, _FORMAT, checkpoint, trigger, name)


def planned(source: Mapping[str, str], options: TableOptions, checkpoint: str) -> TablePlan:
    """What the tasks need, with the table, which is created where there is none. Raises EosError."""
    from spark_eos.checkpoint.files import Checkpoint
    from spark_eos.checkpoint.settings import here
    from spark_eos.copy.checks import bounded, check_source
    from spark_eos.copy.table.plan import TablePlan
    from spark_eos.kafka.admin.topics import cluster_id
    from spark_eos.kafka.net.client import broker_client
    from spark_eos.options.parse import stream_options
    from spark_eos.source.schema import arrow_schema
    from spark_eos.tables.delta.memory import check_start
    from spark_eos.tables.delta.table import known, location_of, refused
    from spark_eos.tables.files import FileLayout

    reads = bounded(stream_options(source))
    check_source(reads, ordered=False, keeps_order="")
    cluster = cluster_id(broker_client(reads.kafka))
    storage = HadoopSettings(here(options.storage))
    columns = arrow_schema(reads.include_headers)
    location = location_of(options.path, storage)
    found = Checkpoint(checkpoint, storage)
    query, finished = found.query_id(), found.last_batch("commits")
    table = known(location, columns, options.partition_by, options.properties, create=finished is None)
    last = None
    if query is not None:
        with refused(location):
            last = location.open().transaction_version(query)
        check_start(location.path, last, finished=finished, planned=found.last_batch("offsets"))
    layout = FileLayout(columns, table.partition_by)
    return TablePlan(reads, cluster, table, layout, checkpoint, storage, last, options.after_restore)
