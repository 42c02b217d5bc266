"""Formats the brokers' storage.

Kafka's StorageTool does it once for each choice of settings and features, and what it wrote is kept in the cache: a JVM
more for every broker of every cluster would take half as long again to start. Only the ids are each broker's own.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path

from spark_eos.devcluster import tools
from spark_eos.devcluster.jars import KAFKA_VERSION
from spark_eos.devcluster.runtime import Runtime
from spark_eos.devcluster.settings import broker_settings, properties
from spark_eos.devcluster.store import digest, stored

_STORAGE_TOOL = "kafka.tools.StorageTool"
# The file with the ids of broker, cluster and folder; there is one exactly where the storage is formatted.
_IDS = "meta.properties"


def new_id() -> str:
    """A random id, written as Kafka does it: 16 bytes, base64 for URLs."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def formatted_files(runtime: Runtime, config: Mapping[str, str], features: Mapping[str, int]) -> list[Path]:
    """The files of a formatted storage, without ids.

    Raises DevClusterError EOS_DEVCLUSTER_TOOL when Kafka refuses the settings or features.
    """

    def format_one(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="spark-eos-format-") as work:
            data = Path(work, "data")
            server_properties = Path(work, "server.properties")
            server_properties.write_text(properties(broker_settings(0, [1], [2], data) | dict(config)))
            # An id may begin with a dash, so the equals sign is needed.
            arguments = ["format", f"--cluster-id={new_id()}", "--config", str(server_properties)]
            arguments += [part for name, level in features.items() for part in ("--feature", f"{name}={level}")]
            tools.run(runtime.command(_STORAGE_TOOL, *arguments), _STORAGE_TOOL, timeout=60)
            for file in data.iterdir():
                if file.name != _IDS:
                    shutil.copyfile(file, folder / file.name)

    return stored(f"kafka-format-{KAFKA_VERSION}-{digest(dict(config), dict(features))}", format_one)


def format_storage(data: Path, files: list[Path], *, cluster_id: str, node_id: int) -> None:
    """Makes `data` the formatted storage of a broker; leaves it alone when it is one already."""
    if (data / _IDS).exists():
        return
    data.mkdir(exist_ok=True)
    for file in files:
        shutil.copyfile(file, data / file.name)
    ids = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_id()}
    (data / _IDS).write_text(properties(ids))
