"""Formats the brokers' storage.

Kafka's StorageTool does it once for each choice of settings and features, and its files are kept in the cache: a JVM
more for every broker of every cluster would take half as long again to start. Only the ids are each broker's own.
"""

from __future__ import annotations

import base64
import fcntl
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from spark_eos.base.printable import refused_by_system
from spark_eos.errors import EosError, stop
from spark_eos.tools.devcluster import tools
from spark_eos.tools.devcluster.cache import cache_dir, digest, stored
from spark_eos.tools.devcluster.runtime import Runtime
from spark_eos.tools.devcluster.settings import broker_settings, properties

_STORAGE_TOOL = "kafka.tools.StorageTool"
#: The file with the ids of broker, cluster and folder; there is one exactly where the storage is formatted.
_IDS = "meta.properties"
_OF_LISTENERS = ("listener.", "sasl.", "ssl.", "super.users")


def new_id() -> str:
    """Return a random id, written as Kafka does it: 16 bytes, base64 for URLs."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def formatted_files(runtime: Runtime, config: Mapping[str, str], features: Mapping[str, int]) -> dict[Path, Path]:
    """Return the files of a formatted storage, without ids, by where they belong in it. Settings of listeners and
    users, and their files, are not among them.

    Raises DevClusterError EOS_DEVCLUSTER_FAILED when Kafka refuses the settings or features.
    """
    config = {key: value for key, value in config.items() if not key.startswith(_OF_LISTENERS)}

    def format_one(folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="spark-eos-format-") as work:
            data = Path(work, "data")
            server_properties = Path(work, "server.properties")
            server_properties.write_text(properties(broker_settings(0, [1], [2], data) | dict(config)))
            # An id may begin with a dash, so the equals sign is needed.
            arguments = ["format", f"--cluster-id={new_id()}", "--config", str(server_properties)]
            arguments += [part for name, level in features.items() for part in ("--feature", f"{name}={level}")]
            tools.run(runtime.command(_STORAGE_TOOL, *arguments), _STORAGE_TOOL, timeout_s=tools.HANG_S)
            shutil.copytree(data, folder, ignore=shutil.ignore_patterns(_IDS), dirs_exist_ok=True)

    name = f"kafka-format-{runtime.version}-{digest(dict(config), dict(features))}"
    return {file.relative_to(cache_dir() / name): file for file in stored(name, format_one)}


def format_storage(data: Path, files: Mapping[Path, Path], *, cluster_id: str, node_id: int) -> None:
    """Makes `data` the formatted storage of a broker; leaves it alone when it is one already."""
    if (data / _IDS).exists():
        return
    data.mkdir(exist_ok=True)
    for place, file in files.items():
        (data / place).parent.mkdir(exist_ok=True)
        shutil.copyfile(file, data / place)
    ids = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_id()}
    write_whole(data / _IDS, properties(ids))


def write_whole(file: Path, text: str) -> None:
    """Write a file so that a crash, or a full disk, leaves the old file."""
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text(text)
    partial.replace(file)


def unusable(error: OSError) -> EosError:
    """Return the error for a file or a folder that the system refuses."""
    return stop("EOS_DEVCLUSTER_CONFIG.folder", why=refused_by_system(error))


def lock_folder(lock: IO[str], folder: Path) -> None:
    """Raise DevClusterError (EOS_DEVCLUSTER_CONFIG) where another cluster has the folder."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise stop(
            "EOS_DEVCLUSTER_CONFIG.folder", data_dir=str(folder), why=f"{folder}: another cluster uses it"
        ) from error
