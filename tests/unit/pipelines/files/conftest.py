"""Files as an ingest plans them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import Store
from spark_eos.pipelines.files import folder
from spark_eos.pipelines.files.copying import FileRows, TransformCounts
from spark_eos.pipelines.files.folder import File, Folder, with_digest
from tests.unit.pipelines import files

NONE = HadoopSettings()
# Functions are tried in another process, which would import the tests, and pytest, for them; now as those of notebooks.
cloudpickle.register_pickle_by_value(files)


def planned(path: Path) -> File:
    """With its digest."""
    (file,) = (file for file in Folder(str(path.parent)).files() if file.uri.endswith(f"/{path.name}"))
    return with_digest(file, NONE)


def rows_of_task(rows: FileRows, *splits: int) -> tuple[list[dict[str, Any]], TransformCounts]:
    """The rows of the splits with these numbers, as a task makes them, and how many it has read and rejected."""
    counts = TransformCounts()
    numbers = [pa.record_batch({"id": pa.array([split], pa.int64())}) for split in splits]
    return [row for batch in rows._rows(numbers, counts) for row in batch.to_pylist()], counts


@pytest.fixture
def without_jvm(monkeypatch) -> None:
    """Spark asks its JVM whether it has a type."""
    monkeypatch.setattr(StructType, "fromDDL", lambda _: None)


@pytest.fixture
def stored_in(monkeypatch) -> Callable[[Store], None]:
    """From now on, every location is in this store."""
    return lambda store: monkeypatch.setattr(folder, "open_store", lambda *_: store)
