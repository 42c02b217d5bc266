"""The start of a query from a table to topics: options, table, and transform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_eos.errors import missing_option, stop
from spark_eos.spi import HadoopSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_eos.checkpoint.files import Checkpoint
    from spark_eos.pipelines.copy.from_table.plan import FromTablePlan
    from spark_eos.pipelines.copy.plan import Function, Transform
    from spark_eos.pipelines.tables.delta.source import SourceTable
    from spark_eos.spi import SinkOptions

_OPTIONS = ("format", "path", "startingVersion", "maxFilesPerTrigger", "maxBytesPerTrigger", "readChangeFeed")
#: Files of a micro-batch where no option says otherwise, as in Delta's own source, and their bytes.
_FILES, _BYTES = 1000, 1 << 30
#: Tasks of a micro-batch, at least, where the session does not say how many run at once.
TASKS = 8
#: The name by which a decision knows rows that are written as they are, which no function can have.
_AS_THEY_ARE = "columns=same"
_NO_SETTINGS = HadoopSettings()


@dataclass(frozen=True)
class SourceTableOptions:
    """The source's options for a table. ``files`` and ``size``, in bytes of files, limit a micro-batch;
    ``starting_version``: None for the table as it is; ``changes``: whether its changes are read; ``storage``: settings
    ``fs.…``."""

    path: str
    starting_version: int | None = None
    files: int = _FILES
    size: int = _BYTES
    changes: bool = False
    storage: HadoopSettings = _NO_SETTINGS


def source_table_options(raw: Mapping[str, str], session: Mapping[str, str]) -> SourceTableOptions:
    """Parse the source's options. ``session``: its settings of file systems. Raises OptionError."""
    from spark_eos.options import values

    given = {}
    names = {name.lower(): name for name in _OPTIONS}
    options, storage = HadoopSettings.split_off(raw, session)
    for key, value in options.items():
        if key.lower() in names:
            given[names[key.lower()]] = value
        else:
            raise stop("EOS_OPTION_UNKNOWN.option", option=key, names=f"{', '.join(_OPTIONS)}, fs.*")
    if "path" not in given:
        raise missing_option("path", "it names the table", "a local path or s3a://BUCKET/PATH")
    version, files, size, changes = (given.get(name) for name in _OPTIONS[2:])
    return SourceTableOptions(
        values.parse_text("path", given["path"]),
        None if version is None else values.parse_version("startingVersion", version),
        _FILES if files is None else values.parse_positive("maxFilesPerTrigger", files),
        _BYTES if size is None else values.parse_size("maxBytesPerTrigger", size),
        changes is not None and values.parse_boolean("readChangeFeed", changes),
        storage,
    )


def planned(
    options: SourceTableOptions,
    sink: Mapping[str, str],
    session: Mapping[str, str],
    transform: Function | None,
    name_of_transform: str | None,
    tasks: int,
) -> FromTablePlan:
    """Return the plan, checked. Raises EosError."""
    from spark_eos.pipelines.copy.from_table.plan import FromTablePlan
    from spark_eos.pipelines.copy.from_table.planning import Limits

    storage, writes, table = _ends(options, sink, session)
    function = _checked(transform, name_of_transform, table, writes.topic)
    if options.changes and writes.partitioner == "random" and not function.columns.partition:
        raise stop("EOS_OPTION_CONFLICT.partitioner", given="The option 'readChangeFeed' is set")
    limits = Limits(options.files, options.size)
    return FromTablePlan(writes, function, table, options.starting_version, limits, tasks, storage)


def check(source: Mapping[str, str], sink: Mapping[str, str], session: Mapping[str, str]) -> None:
    """Check table and checkpoint as a start does, and that a new query can begin to read the table. Needs no session,
    writes nothing, and reads none of the table's data files. Raises EosError."""
    from spark_eos.checkpoint.files import Checkpoint
    from spark_eos.pipelines.tables.delta.log import TableLog

    options = source_table_options(source, session)
    _, writes, table = _ends(options, sink, session)
    if Checkpoint(str(writes.checkpoint_location), writes.storage).last_batch("offsets") is not None:
        return
    log = TableLog(table)
    if options.starting_version is None:
        log.first(table.version)
    elif log.files(options.starting_version) is not None:
        log.check_begin(options.starting_version)


def _ends(
    options: SourceTableOptions, sink: Mapping[str, str], session: Mapping[str, str]
) -> tuple[HadoopSettings, SinkOptions, SourceTable]:
    """Return the settings of the table's store, the sink's options, and the table, which goes with the checkpoint.
    Raises EosError."""
    from spark_eos.checkpoint.files import Checkpoint
    from spark_eos.pipelines.tables.delta.source import source_table
    from spark_eos.pipelines.tables.delta.table import location_of
    from spark_eos.spi import sink_options

    writes = sink_options(sink, session)
    storage = options.storage.on_this_machine()
    if writes.group_id:
        raise stop("EOS_CHECKPOINT_WITHOUT_OFFSETS.no_kafka_source", location=writes.checkpoint_location)
    assert writes.checkpoint_location is not None  # `spark_eos.copy` sets it
    _check_checkpoint(Checkpoint(writes.checkpoint_location, writes.storage), options)
    return storage, writes, source_table(location_of(options.path, storage), changes=options.changes)


def _check_checkpoint(checkpoint: Checkpoint, options: SourceTableOptions) -> None:
    """Check that the checkpoint's query, if there is one, reads this table, and the same of it (changes or appended
    rows). Raises TableError (EOS_DELTA_OTHER_SOURCE), and CheckpointError where its offsets cannot be read."""
    from spark_eos.pipelines.copy.from_table.position import check_reads, from_text

    newest = checkpoint.last_batch("offsets")
    for line in () if newest is None else checkpoint.sources(newest):
        position = from_text(line)
        if position is None:
            raise stop("EOS_DELTA_OTHER_SOURCE.through_spark", path=options.path)
        check_reads(position, options.path, changes=options.changes)


def _checked(function: Function | None, name: str | None, table: SourceTable, topic: str | None) -> Transform:
    """Return the function as a transform, with the columns that it returns when it is called once with an empty batch.
    Raises SchemaError, RowError, and TableError where the columns that order changes have other types in the result."""
    import pyarrow as pa

    from spark_eos.pipelines.copy.from_table.changes import input_schema, rows_of
    from spark_eos.pipelines.copy.transforming import as_batch, as_sink_rows, transform_to

    chosen: Function = _same if function is None else function
    schema = input_schema(table.schema) if table.changes else table.schema
    result = as_batch(chosen(pa.RecordBatch.from_pylist([], schema=schema)))
    rows = rows_of(result, None) if table.changes else as_sink_rows(result)
    return transform_to(topic, chosen, name or _AS_THEY_ARE, rows)


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch
