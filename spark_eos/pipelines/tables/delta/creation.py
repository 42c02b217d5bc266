"""The Delta table of a query that starts: one that is there is checked, and where there is none, it is created, after
checks that tell as much as is known before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.types as types
from pyarrow.fs import FileSelector

from spark_eos.errors import stop
from spark_eos.pipelines.tables.delta.put_if_absent import check_put_if_absent
from spark_eos.pipelines.tables.delta.table import Location, Table, check_appendable, check_same, columns_of, refused
from spark_eos.pipelines.tables.evolution import added
from spark_eos.pipelines.tables.values import check_columns
from spark_eos.spi import HadoopSettings, open_store

#: Characters that Delta allows in a column's name only with column mapping, which is refused.
_MAPPED = re.compile(r"[ ,;{}()\n\t=]")
#: The property for how long VACUUM spares files that are in no version.
RETENTION = "delta.deletedFileRetentionDuration"
#: Delta's default for that property, a week.
_RETENTION_MS = 7 * 24 * 3600 * 1000
_UNITS_MS = {"week": 604_800_000, "day": 86_400_000, "hour": 3_600_000, "minute": 60_000, "second": 1000}
_UNITS_MS |= {"millisecond": 1}

#: Files that an error names.
_LISTED = 3


def known(
    location: Location,
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    *,
    create: bool = True,
) -> Table:
    """Return the table at the location, with exactly these columns.

    Where there is none, it is created if ``create``, with ``partition_by`` and ``properties``. Raises TableError
    (EOS_DELTA_NO_TABLE, EOS_TABLE_DIFFERS, EOS_DELTA_TABLE_SETTINGS), also where its store would let one commit replace
    another one (EOS_DELTA_STORE_UNSAFE), and SchemaError for columns that files cannot have.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    with refused(location):
        handle = None
        try:
            handle = location.open()
        except TableNotFoundError:
            if not create:
                more = ", though the checkpoint has micro-batches that were written to it"
                raise stop("EOS_DELTA_NO_TABLE.path", path=location.path, at=f" at {location.path}{more}") from None
            check_creatable(location, schema, partition_by, properties)
        if not location.is_local:
            check_put_if_absent(location)
        if handle is None:
            if location.is_local:
                Path(location.uri).mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                location.uri,
                schema,
                mode="ignore",
                partition_by=list(partition_by) or None,
                configuration=properties,
                storage_options=dict(location.options),
            )
            handle = location.open()
        check_appendable(location, handle)
        columns = columns_of(schema)
        # A table that was there keeps its own partition columns.
        folders = tuple(handle.metadata().partition_columns)
        check_same(location, handle, columns, folders)
        check_columns(schema, folders)
        return Table(location, str(handle.metadata().id), tuple(columns.items()), folders)


def check_creatable(
    location: Location,
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> None:
    """Check that a table with these columns can be created at the location, where there is none, and that tasks can
    write to it. Writes nothing there. Raises SchemaError, TableError, such as EOS_DELTA_TABLE_SETTINGS.new for
    properties that appends would break or that delta-rs does not take, and errors of the store."""
    check_folder(location.path, location.settings)
    check_columns(schema, partition_by)
    check_names(pa.schema([]), schema)
    given = dict(properties or {})
    if _is_appendable(location, schema, given):
        return
    broken = {name: value for name, value in given.items() if not _is_appendable(location, schema, {name: value})}
    listed = ", ".join(f"{name}={value}" for name, value in (broken or given).items())
    raise stop("EOS_DELTA_TABLE_SETTINGS.new", path=location.path, properties=listed)


def check_folder(path: str, settings: HadoopSettings) -> None:
    """Check that a table at this path, where there is none, would have nothing in its folder but its own files: others
    would not be in it, and VACUUM would remove them. Only names that begin with _ or . are left alone by both. Raises
    TableError (EOS_DELTA_NO_TABLE), and errors of the store."""
    store = open_store(path, settings)
    if store.files.get_file_info(store.root).is_file:
        raise stop("EOS_DELTA_NO_TABLE.path", path=path, at=f" at {path}: it is a file, and a table is a folder")
    if (why := store.why_unwritable()) is not None:
        raise stop("EOS_DELTA_NO_TABLE.unwritable", path=path, why=why)
    inside = store.files.get_file_info(FileSelector(store.root, allow_not_found=True))
    if others := sorted(info.base_name for info in inside if not info.base_name.startswith(("_", "."))):
        listed = ", ".join(others[:_LISTED]) + (", …" if others[_LISTED:] else "")
        raise stop("EOS_DELTA_NO_TABLE.other_files", path=path, files=listed)


def _is_appendable(location: Location, schema: pa.Schema, properties: Mapping[str, str]) -> bool:
    """Return whether a table with these properties would take appends, by creating one in a folder that is then
    removed: some properties change a table's protocol, in a way that only delta-rs knows."""
    from deltalake import DeltaTable

    if not properties:
        return True
    if not retention_ms(properties.get(RETENTION)):
        return False
    with TemporaryDirectory() as folder:
        try:
            check_appendable(location, DeltaTable.create(folder, schema, configuration=properties))
        except OSError:
            raise
        except BaseException as error:  # delta-rs panics for some, which is no Exception
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            return False
    return True


def check_names(there: pa.Schema, wide: pa.Schema) -> None:
    """Raise SchemaError where a column that ``wide`` adds has a name that a table cannot have."""
    for path, type_ in added(there, wide):
        for name in (path[-1], *_names(type_)):
            if _MAPPED.search(name):
                raise stop(
                    "EOS_TABLE_COLUMNS.name",
                    column=name,
                    why="blanks and , ; {} ( ) = are for tables with column mapping only",
                )


def _names(type_: pa.DataType) -> Iterator[str]:
    """Yield the names of the fields in a type."""
    for place in range(type_.num_fields):
        field = type_.field(place)
        if types.is_struct(type_):
            yield field.name
        yield from _names(field.type)


def retention_ms(text: str | None) -> int:
    """Return the milliseconds of a property such as ``interval 1 week 2 days``; Delta's default for None, and 0 for a
    text that cannot be parsed, so that every file is too old."""
    if text is None:
        return _RETENTION_MS
    parts = re.findall(r"(\d+)\s+([a-z]+?)s?\b", text.lower().removeprefix("interval"))
    if not parts or any(unit not in _UNITS_MS for _, unit in parts):
        return 0
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
