"""The log of a Delta table that a query reads: which files each version has for it, and whether the table is the same.

The files that the table had when a query began come first: delta-rs lists them, and they are ordered by path.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as types

from spark_eos.errors import DataLossError, EosError, stop
from spark_eos.pipelines.tables.delta.source import SourceTable, check_rules, check_then, other_table
from spark_eos.pipelines.tables.delta.table import refused
from spark_eos.pipelines.tables.delta.versions import FILES, INSERTED, VersionFiles, digest_of, files_of, path_of
from spark_eos.pipelines.tables.partitions import NoPartition, text_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

_VECTORS = "deletionVectors"
#: Versions whose files are kept in memory, as a micro-batch is planned twice.
_KEPT = 2048


@dataclass(frozen=True)
class TableLog:
    """The log of a table, in one process, which caches the version that it has read last."""

    table: SourceTable
    _kept: dict[int, VersionFiles] = field(default_factory=dict, compare=False)
    _first: dict[int, VersionFiles] = field(default_factory=dict, compare=False)

    def files(self, version: int) -> VersionFiles | None:
        """Return the files that a version has appended, or the files of its changes; None where it does not exist yet.

        Raises TableError where the version has other changes, or where the log is another table's
        (EOS_DELTA_ROWS_CHANGED, EOS_DELTA_SCHEMA_CHANGED, EOS_DELTA_TABLE_SETTINGS, EOS_OTHER_TABLE,
        EOS_DELTA_LOG_DAMAGED), and DataLossError where the version no longer exists (EOS_DELTA_DATA_LOSS).
        """
        if version not in self._kept:
            with refused(self.table.location):
                data = self._read(version)
            if data is None:
                return None
            while len(self._kept) >= _KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[version] = files_of(self.table, version, data)
        return self._kept[version]

    def first(self, version: int) -> VersionFiles:
        """Return all files that the table had at a version. Raises TableError, and DataLossError (EOS_DELTA_DATA_LOSS)
        where the log no longer has it."""
        if version not in self._first:
            self._first.clear()
            handle = self._opened(version)
            with refused(self.table.location):
                self._first[version] = _all_files(self.table, handle)
        return self._first[version]

    def check_begin(self, version: int) -> None:
        """Check that a query can begin with this version: it can read the table as it was then, by protocol and
        metadata, which may be in earlier versions. Where the log was cleaned and no longer has them, appends are read
        all the same; changes are not, as they have to be recorded. Raises TableError, and DataLossError
        (EOS_DELTA_DATA_LOSS)."""
        try:
            handle = self._opened(version)
        except DataLossError:
            if self.table.changes:
                raise
            return
        check_then(self.table, handle)

    def _opened(self, version: int) -> DeltaTable:
        """Return the table at a version. Raises as `first`."""
        from deltalake.exceptions import DeltaError

        location = self.table.location
        with refused(location):
            try:
                return location.open(version)
            except DeltaError:
                if location.has(_name(0)):
                    raise
                self._same_table()  # raises where the table is gone, or cannot be read now
                cause = f"the table {location.path} can no longer be read at version {version}"
                raise stop("EOS_DELTA_DATA_LOSS.log", cause=cause) from None

    def newest(self) -> int:
        """Return the newest version. Raises TableError."""
        with refused(self.table.location):
            return self._same_table().version()

    def mark(self, version: int) -> str | None:
        """Return the mark of a version's JSON, as it is now; None where there is none. Raises TableError."""
        with refused(self.table.location):
            data = self.table.location.read(_name(version))
        return None if data is None else digest_of(data)

    def check(self, version: int, mark: str) -> None:
        """Check that the table is the one whose version had this mark. Where the JSON is gone, as the log was cleaned,
        the table must have its id and be at that version, or past it with the next one. Raises TableError
        (EOS_OTHER_TABLE, EOS_DELTA_NO_TABLE), and DataLossError where the next one is gone, too
        (EOS_DELTA_DATA_LOSS)."""
        path, now = self.table.location.path, self.mark(version)
        if now is None:
            with refused(self.table.location):
                newest = self._same_table().version()
                is_cut = newest > version and not self.table.location.has(_name(version + 1))
            if newest < version:
                raise other_table(path, f"it is at version {newest}, and version {version} was read")
            if is_cut:  # later versions may be gone as well, and then nothing would show that they existed
                raise _gone(path, version + 1)
        elif now != mark:
            raise other_table(path, f"its version {version} is not the one that was read")

    def _same_table(self) -> DeltaTable:
        from deltalake.exceptions import TableNotFoundError

        table = self.table
        try:
            handle = table.location.open()
        except TableNotFoundError:
            raise stop(
                "EOS_DELTA_NO_TABLE.path",
                path=table.location.path,
                at=f" at {table.location.path}, where it was before",
            ) from None
        if str(handle.metadata().id) != table.id:
            raise other_table(table.location.path, f"its id is {handle.metadata().id}, not {table.id}")
        return handle

    def _read(self, version: int) -> bytes | None:
        """Return the JSON of a version. It has to be there where the next one is, or a checkpoint of it. Raises
        OSError."""
        location = self.table.location
        data = location.read(_name(version))
        if data is not None or not (location.has(_name(version + 1)) or self._checkpoint() >= version):
            return data
        data = location.read(_name(version))  # it may have come since
        if data is None:
            raise _gone(location.path, version)
        return data

    def _checkpoint(self) -> int:
        """Return the version of the last checkpoint that the log names; -1 where it names none."""
        try:
            return int(self.table.location.last_checkpoint().get("version", -1))
        except (ValueError, TypeError):
            return -1


def _name(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _gone(path: str, version: int) -> EosError:
    return stop("EOS_DELTA_DATA_LOSS.log", cause=f"version {version} of {path} is gone, and the table is past it")


def _all_files(table: SourceTable, handle: DeltaTable) -> VersionFiles:
    check_then(table, handle)
    if _VECTORS in (handle.protocol().reader_features or ()):
        vectors = pa.RecordBatchReader.from_stream(handle.deletion_vectors())
        if any(batch.num_rows for batch in vectors):
            check_rules(table.location, ["files with deletion vectors"])
    adds = pa.table(handle.get_add_actions())
    values = [_texts_in(table, adds, name) for name in table.partition_by]
    partitions = [json.dumps(row) for row in zip(*values, strict=True)] if values else ["[]"] * adds.num_rows
    paths = [path_of(table, path) for path in adds.column("path").to_pylist()]
    kinds = [INSERTED] * adds.num_rows
    files = pa.table([paths, adds.column("size_bytes"), partitions, kinds], schema=FILES).sort_by("path")
    files = files.combine_chunks()
    return VersionFiles(files, digest_of(json.dumps(files.drop_columns("kind").to_pydict()).encode()))


def _texts_in(table: SourceTable, adds: pa.Table, name: str) -> list[str | None]:
    """Return the partition values of a column, as texts of a log."""
    kind = table.schema.field(name).type
    values = adds.column("partition").combine_chunks().field(name)
    if types.is_string(kind):  # any text of another writer, also one that is never written here
        return [text or None for text in values.to_pylist()]
    if types.is_timestamp(kind):
        values = values.cast(pa.int64())
    try:
        return [text_of(value, kind) for value in values.to_pylist()]
    except NoPartition as error:
        raise stop("EOS_DELTA_FAILED", cause=f"partition column {name} of {table.location.path}: {error}") from None
