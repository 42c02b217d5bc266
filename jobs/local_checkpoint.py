"""A checkpoint on a local disk: one process at a time writes it, so its files can be written in a faster way."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_eos.errors import CheckpointError

#: The file in the checkpoint that is locked; what is in it says who holds the lock.
LOCK = ".spark-eos.lock"

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
CHECKSUMS = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
#: Spark's own choice for a local disk starts a program for most steps of writing a file, and this one for few of them.
#: Both look whether a file is there before they rename another one to its name; this one does not notice if it has
#: come in between. And it has checksums of its own, so that Spark's, in files of their own, are not needed.
FASTER = {
    MANAGER: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    CHECKSUMS: "false",
}
_WAIT_S, _POLL_S = 5.0, 0.2


class LocalCheckpoint:
    """A context manager: after `take`, Spark's JVM holds the checkpoint's lock until the end of the block, or its own
    end, however that comes. Elsewhere than on a local disk, or where files cannot be locked, it does nothing."""

    def __init__(self) -> None:
        self._file: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            with contextlib.suppress(Py4JError, ConnectionError):  # a JVM that has ended holds no lock
                self._file.close()

    def take(self, spark: SparkSession, location: str, wait_s: float = _WAIT_S) -> None:
        """Before the first query starts. Waits for a process that is about to end, and else raises CheckpointError."""
        folder = _local_folder(spark, location)
        if folder is None or not self._lock(spark, folder, wait_s):
            return
        if spark.conf.get(MANAGER, None) is None and _has_class(spark, FASTER[MANAGER]):
            for name, value in FASTER.items():
                if spark.conf.get(name, None) is None:
                    spark.conf.set(name, value)

    def _lock(self, spark: SparkSession, folder: Path, wait_s: float) -> bool:
        """Whether files can be locked there. By the JVM and not by this process: it writes the checkpoint's files, and
        may live on when this process has been killed."""
        folder.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + wait_s
        jvm: Any = spark.sparkContext._jvm
        self._file = jvm.java.io.RandomAccessFile(str(folder / LOCK), "rw")
        while True:
            try:
                locked = self._file.getChannel().tryLock() is not None
            except (Py4JJavaError, PySparkException) as error:
                if "OverlappingFileLockException" not in str(error):
                    return False
                locked = False  # it is this JVM that has it
            if locked:
                owner = {"host": platform.node(), "pid": os.getpid()}
                self._file.setLength(0)
                self._file.writeBytes(json.dumps(owner))
                return True
            if time.monotonic() > deadline:
                raise _in_use(folder)
            time.sleep(_POLL_S)


def _has_class(spark: SparkSession, name: str) -> bool:
    """Versions of Spark have it in different packages."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(name.replace(".", "/") + ".class") is not None


def _local_folder(spark: SparkSession, location: str) -> Path | None:
    """Where the checkpoint is, as Spark finds it; None unless that is on a local disk."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    try:
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    except (Py4JJavaError, PySparkException):
        return None  # Spark tells what is wrong with it, when it starts the query
    if files.getUri().getScheme() != "file":
        return None
    return Path(files.makeQualified(path).toUri().getPath())


def _in_use(folder: Path) -> CheckpointError:
    try:
        owner = json.loads((folder / LOCK).read_text())
        who = f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return CheckpointError(
        "EOS_CHECKPOINT_IN_USE",
        f"The checkpoint {folder} is in use by {who}.",
        hint="Stop that process if this one is to replace it. A process that was killed holds the checkpoint for as "
        "long as its JVM lives.",
        location=str(folder),
    )
