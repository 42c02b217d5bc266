"""A table in a local folder: where it is, and what files of Iceberg show of it, whoever writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import StaticTable

from bench.result import WrongResult

#: The files of versions, which begin by the version's number; a draft of one has another name.
_METADATA = re.compile(r"(v\d+|\d{5}-.+)\.metadata\.json")
_COUNT = 'SELECT count(*), count(DISTINCT ("partition", "offset")) FROM read_parquet($files)'


def table_in(folder: Path) -> Path:
    """Where all contenders that are given the folder have their table."""
    return folder / "bench" / "rows"


def sink_in(folder: Path, kind: str) -> dict[str, str]:
    """The options by which a copy writes this table, of Delta or Iceberg; of the latter, in a catalog of its own."""
    if kind == "delta":
        return {"format": kind, "path": str(table_in(folder))}
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    return {"format": kind, "table": "bench.rows", **{f"catalog.{name}": value for name, value in catalog.items()}}


def rows_told(folder: Path) -> int:
    """How many rows the table says that it has."""
    table = _newest(folder)
    snapshot = None if table is None else table.current_snapshot()
    return 0 if snapshot is None or snapshot.summary is None else int(str(snapshot.summary["total-records"]))


def rows_read(folder: Path) -> int:
    """How many rows are in the table's files, as DuckDB reads them. Raises WrongResult where two are from one place of
    a topic."""
    table = _newest(folder)
    files = [] if table is None else [_local(task.file.file_path) for task in table.scan().plan_files()]
    if not files:
        return 0
    with duckdb.connect() as connection:
        ((rows, places),) = connection.execute(_COUNT, {"files": files}).fetchall()
    if rows != places:
        raise WrongResult(f"{rows:,} rows of a table are from {places:,} places of a topic")
    return int(rows)


def added(folder: Path) -> Iterator[tuple[float, str, int]]:
    """Of each file that was added: when the first version with it was there, in seconds since the epoch, its path,
    and its bytes."""
    seen = set[int]()
    for version in _versions(folder):
        table = StaticTable.from_metadata(str(version))
        snapshot = table.current_snapshot()
        if snapshot is None or snapshot.snapshot_id in seen:
            continue
        seen.add(snapshot.snapshot_id)
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot.snapshot_id:
                for entry in manifest.fetch_manifest_entry(table.io):
                    if entry.status is ManifestEntryStatus.ADDED:
                        yield (
                            version.stat().st_mtime,
                            _local(entry.data_file.file_path),
                            entry.data_file.file_size_in_bytes,
                        )


def _newest(folder: Path) -> StaticTable | None:
    """None before the first version."""
    versions = _versions(folder)
    return StaticTable.from_metadata(str(versions[-1])) if versions else None


def _versions(folder: Path) -> list[Path]:
    """In their order."""
    found = (file for file in folder.glob("metadata/*.metadata.json") if _METADATA.fullmatch(file.name))
    return sorted(found, key=lambda file: int(re.findall(r"\d+", file.name)[0]))


def _local(place: str) -> str:
    return place.removeprefix("file://").removeprefix("file:")
