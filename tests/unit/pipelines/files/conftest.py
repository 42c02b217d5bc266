"""Files as an ingest plans them."""

from __future__ import annotations

from pathlib import Path

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.pipelines.files.folder import File, Folder, with_digest

NONE = HadoopSettings()


def planned(path: Path) -> File:
    """With its digest."""
    (file,) = (file for file in Folder(str(path.parent)).files() if file.uri.endswith(f"/{path.name}"))
    return with_digest(file, NONE)
