"""The kinds of tables that copies write to, for tests: how a query names one, what others do to it meanwhile, and what
it has, as two readers see it that are not ours."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.schema import Field, PrimitiveType

from spark_eos.base.frozen_settings import Settings
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import Store
from spark_eos.pipelines.copy.table.options import table_options
from spark_eos.pipelines.tables.commit import Outcome
from spark_eos.pipelines.tables.delta.table import location_of
from spark_eos.pipelines.tables.files import DataFile, FileAttempt, FileLayout, FileWriter
from spark_eos.pipelines.tables.micro_batch import RangeBatch
from spark_eos.pipelines.tables.target import TableReference, Target
from spark_eos.tools.verify import TableAddress
from tests.support.tables.delta_files import SCHEMA, looked_after, records
from tests.support.waiting import TIMEOUT

if TYPE_CHECKING:  # imported where a table is opened, as each process of the tests has this module
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

#: Partition and offset of a row → how many rows have them.
Places = Counter[tuple[int, int]]


class TableKind(ABC):
    """A table of one kind in a folder of its own, which may not be there yet."""

    #: The option ``format``.
    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def sink(self) -> dict[str, Any]:
        """The query's options."""

    def place(self, **more: str) -> TableReference:
        """As a query with the options sees it. ``more``: further ones."""
        return table_options(self.sink() | more, {}).reference(HadoopSettings())

    def target(self, schema: pa.Schema = SCHEMA, **more: str) -> Target:
        """The table, which is created where it is not there."""
        return self.place(**more).target(schema, create=True)

    @abstractmethod
    def checked(self) -> TableAddress:
        """As `spark-eos verify` names it."""

    @abstractmethod
    def is_there(self) -> bool: ...

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """By one of the readers."""

    @abstractmethod
    def places(self) -> Places:
        """By both, which agree."""

    @abstractmethod
    def files(self) -> set[str]:
        """The names of those that it has now."""

    @abstractmethod
    def append(self, row: dict[str, Any]) -> None:
        """As another writer."""

    @abstractmethod
    def tidy(self) -> None:
        """What is done to tables in the background; does nothing where it meets another writer."""

    @abstractmethod
    def last(self, query: str) -> int:
        """The last micro-batch that the table remembers."""

    @abstractmethod
    def versions(self) -> int:
        """How many commits it had."""

    @abstractmethod
    def notes(self) -> list[dict[str, Any]]:
        """What the commits of micro-batches say of themselves, in order: number, rows and ranges."""

    @abstractmethod
    def drop(self) -> None: ...

    @abstractmethod
    def recreate(self) -> None:
        """As an empty one."""

    @abstractmethod
    def add_column(self) -> None: ...

    @abstractmethod
    def put_back(self) -> dict[str, str]:
        """To what it was after its first micro-batch. Returns the option by which a query goes on after that."""


class Delta(TableKind):
    """In the folder ``table``; it is looked after as docs/delta.md says."""

    name = "delta"

    @property
    def path(self) -> Path:
        return self.folder / "table"

    def sink(self) -> dict[str, Any]:
        return {"format": "delta", "path": str(self.path)}

    def checked(self) -> TableAddress:
        return TableAddress("delta", str(self.path), Settings())

    def is_there(self) -> bool:
        return bool(DeltaTable.is_deltatable(str(self.path)))

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(str(self.path)).to_pyarrow_table().to_pylist()
        return found

    def places(self) -> Places:
        return delta_places(self.path)

    def files(self) -> set[str]:
        return {Path(uri).name for uri in DeltaTable(str(self.path)).file_uris()}

    def append(self, row: dict[str, Any]) -> None:
        schema = pa.schema(DeltaTable(str(self.path)).schema().to_arrow())
        write_deltalake(str(self.path), pa.Table.from_pylist([row], schema), mode="append")

    def tidy(self) -> None:
        try:
            looked_after(location_of(str(self.path), HadoopSettings()))
        except DeltaError:
            return

    def last(self, query: str) -> int:
        return int(DeltaTable(str(self.path)).transaction_version(query) or 0)

    def versions(self) -> int:
        return int(DeltaTable(str(self.path)).version())

    def notes(self) -> list[dict[str, Any]]:
        texts = [entry.get("userMetadata") for entry in reversed(DeltaTable(str(self.path)).history())]
        return [_note(json.loads(text)["spark-eos"]) for text in texts if text is not None]

    def drop(self) -> None:
        shutil.rmtree(self.path)

    def recreate(self) -> None:
        self.drop()
        DeltaTable.create(str(self.path), SCHEMA)

    def add_column(self) -> None:
        DeltaTable(str(self.path)).alter.add_columns([Field("more", PrimitiveType("string"))])

    def put_back(self) -> dict[str, str]:
        DeltaTable(str(self.path)).restore(1)
        return {"afterRestore": str(self.versions())}


class Iceberg(TableKind):
    """In a catalog on SQLite; its snapshots expire at once. ``more``: further properties of the catalog."""

    name = "iceberg"
    table = "tests.records"
    more: Mapping[str, str] = MappingProxyType({})

    @property
    def catalog(self) -> dict[str, str]:
        where = {"uri": f"sqlite:///{self.folder}/catalog.db", "warehouse": f"file://{self.folder}/warehouse"}
        return where | self.more

    def sink(self) -> dict[str, Any]:
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = {f"catalog.{name}": value for name, value in self.catalog.items()}
        return {"format": "iceberg", "table": self.table, "catalog.type": "sql", **properties}

    def checked(self) -> TableAddress:
        return TableAddress("iceberg", self.table, Settings(self.sink()))

    def load(self) -> Table:
        return self.opened().load_table(self.table)

    def opened(self) -> SqlCatalog:
        from pyiceberg.catalog.sql import SqlCatalog

        self.folder.mkdir(parents=True, exist_ok=True)
        return SqlCatalog("default", **self.catalog)

    def is_there(self) -> bool:
        return bool(self.opened().table_exists(self.table))

    def rows(self) -> list[dict[str, Any]]:
        return self._by_polars().collect().to_dicts()  # pyiceberg reads a list of structs that is null as an empty one

    def places(self) -> Places:
        table = self.load()
        files = [file["file_path"].removeprefix("file://") for file in table.inspect.files().to_pylist()]
        read = table.scan(selected_fields=("partition", "offset")).to_arrow()
        by_polars = self._by_polars(table).select("partition", "offset").collect()
        assert Counter(by_polars.rows()) == Counter((row["partition"], row["offset"]) for row in read.to_pylist())
        return _agreed(read, files)

    def files(self) -> set[str]:
        return {Path(file["file_path"]).name for file in self.load().inspect.files().to_pylist()}

    def _by_polars(self, table: Table | None = None) -> polars.LazyFrame:
        return polars.scan_iceberg((table or self.load()).metadata_location)

    def append(self, row: dict[str, Any]) -> None:
        """Once, however often it is refused, or fails after it was done."""
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.expressions import And, EqualTo
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from sqlalchemy.exc import SQLAlchemyError

        is_there = And(*(EqualTo(name, row[name]) for name in ("topic", "partition", "offset")))
        while not self.load().scan(is_there).count():
            table = self.load()
            with contextlib.suppress(CommitFailedException, SQLAlchemyError):
                table.append(pa.Table.from_pylist([row], schema_to_pyarrow(table.schema())))

    def tidy(self) -> None:
        table = self.load()
        kept = {ref.snapshot_id for ref in table.refs().values()}
        gone = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in kept]
        try:
            table.maintenance.expire_snapshots().by_ids(gone).commit()
        except Exception:
            return

    def last(self, query: str) -> int:
        table = self.load()
        snapshot = table.snapshot_by_id(table.refs()[f"eos-{query}"].snapshot_id)
        assert snapshot is not None and snapshot.summary is not None
        return int(str(snapshot.summary["spark-eos.batch"]))

    def versions(self) -> int:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return int(self.load().metadata.last_sequence_number)
        except NoSuchTableError:
            return 0

    def notes(self) -> list[dict[str, Any]]:
        summaries = [dict(snapshot.summary.additional_properties) for snapshot in self.load().snapshots()]
        noted = [{name.removeprefix("spark-eos."): value for name, value in each.items()} for each in summaries]
        return [_note(each | {"ranges": json.loads(each["ranges"])}) for each in noted if "ranges" in each]

    def drop(self) -> None:
        self.opened().drop_table(self.table)

    def recreate(self) -> None:
        schema = self.load().schema()
        self.drop()
        self.opened().create_table(self.table, schema)

    def add_column(self) -> None:
        from pyiceberg.types import LongType

        with self.load().update_schema() as update:
            update.add_column("more", LongType())

    def put_back(self) -> dict[str, str]:
        table = self.load()
        newest = table.current_snapshot()
        table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()
        return {"afterRollback": str(newest.snapshot_id if newest else None)}


KINDS: dict[str, type[TableKind]] = {kind.name: kind for kind in (Delta, Iceberg)}


def _note(noted: dict[str, Any]) -> dict[str, Any]:
    return {"batch": int(noted["batch"]), "rows": int(noted["rows"]), "ranges": noted["ranges"]}


def written(
    store: Store, layout: FileLayout, rows: pa.RecordBatch, batch: int = 0, task: int = 0
) -> tuple[DataFile, ...]:
    """The files that a task of a micro-batch writes for these rows."""
    with FileWriter(store, layout, FileAttempt("q", batch, task, 0)) as writer:
        writer.write(rows)
        return writer.close()


def rows_of(layout: FileLayout, batch: RangeBatch, **more: Any) -> pa.RecordBatch:
    """The micro-batch's rows, with these values besides."""
    rows = [dict(zip(SCHEMA.names, record, strict=True)) | more for record in records(batch)]
    return pa.RecordBatch.from_pylist(rows, layout.schema)


def files_of(target: Target, batch: RangeBatch, **more: Any) -> tuple[DataFile, ...]:
    """Those of the micro-batch's rows, with these values besides."""
    return written(target.store(), target.layout, rows_of(target.layout, batch, **more), batch.number)


def committed(target: Target, batch: RangeBatch) -> Outcome:
    """The outcome for a micro-batch whose files were written just now."""
    return target.commit(batch, files_of(target, batch), len(records(batch)), patience_s=TIMEOUT)


def expected(*batches: RangeBatch) -> Places:
    """The rows of these micro-batches, each once."""
    return Counter((partition, offset) for batch in batches for _, partition, offset in records(batch))


def delta_places(path: Path) -> Places:
    """Of a Delta table in any folder."""
    at_once = DeltaTable(str(path))  # others may write meanwhile
    return _agreed(at_once.to_pyarrow_table(columns=["partition", "offset"]), at_once.file_uris())


def _agreed(read: pa.Table, files: list[str]) -> Places:
    """What a library reads, which DuckDB finds in the files that the table names, too."""
    if not files:
        assert not read.num_rows
        return Counter()
    import duckdb

    found = duckdb.sql(f'SELECT partition, "offset", count(*) FROM read_parquet({files!r}) GROUP BY ALL').fetchall()
    counted = Counter({(partition, offset): count for partition, offset, count in found})
    assert counted == Counter((row["partition"], row["offset"]) for row in read.to_pylist())
    return counted


#: Partition and offset of the rows of `beside_others`, each once.
FOREIGN = Counter([(9, 0), (9, 1), (9, 2)])


def beside_others(kind: TableKind, drive: Callable[[], None], drivers: int) -> None:
    """Let so many drivers work at once, while others append the rows `FOREIGN` and look after the table."""

    def disturb() -> None:
        for _, n in FOREIGN:
            kind.append({"topic": "foreign", "partition": 9, "offset": n})
            kind.tidy()

    threads = [threading.Thread(target=work) for work in (*[drive] * drivers, disturb)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
