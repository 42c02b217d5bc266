"""A checkpoint on a local disk: one process at a time writes it, so its files can be written in a faster way."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import re
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_eos.base.printable import printable
from spark_eos.base.retry import retrying
from spark_eos.checkpoint.stores import Store, why_unwritable
from spark_eos.errors import EosError, stop
from spark_eos.spark.system_errors import may_pass

from .lines import say

#: The lock file in the checkpoint; its content names the process that holds the lock.
LOCK = ".spark-eos.lock"

#: A property of the JVM that has the lock of the file that is known by this.
_HELD = "spark-eos.lock.{}"

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
CHECKSUMS = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
#: Spark's own choice for a local disk starts a program for most steps of writing a file, and this one for few of them.
#: Both look whether a file is there before they rename another one to its name; this one does not notice if it was
#: created in between. And it has checksums of its own, so that Spark's, in files of their own, are not needed. With two
#: writers and a delay between look and rename, both managers let the second one replace the first one's file in 40 of
#: 40 tries; without the delay, this one in 6 of 300. Spark's own takes 44 ms for a file, this one 11. Files of state
#: stores are written by tasks, over existing ones, with either manager: another driver's state is kept out by
#: allowing no other driver.
FASTER = {
    MANAGER: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    CHECKSUMS: "false",
}
#: A file of the offset log on its way to the name 0, and its checksum.
_FIRST_DRAFT = re.compile(r"\.+0\.[0-9a-f-]+\.tmp(?:\.crc)?")
_WAIT_S, _POLL_S = 5.0, 0.2


class LocalCheckpoint:
    """A context manager: after `take`, Spark's JVM holds the checkpoint's lock until the end of the block, or its own
    end, however that comes. Elsewhere than on a local disk it does nothing; where files cannot be locked, it says so.

    The system takes all locks of a file from a process that closes the file once, wherever else in it the file is open.
    So a JVM opens the file of a lock only when it has no lock of it: who has which one is noted in its properties.
    """

    def __init__(self) -> None:
        self._file: Any = None
        self._note: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(Py4JError, ConnectionError):  # a JVM that has ended holds no lock
            self._release()

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._note is not None:
            self._note()
            self._note = None

    def take(self, spark: SparkSession, location: str, wait_s: float = _WAIT_S) -> None:
        """Take the lock, before the first query starts. Waits for a process that is about to end, and else raises
        CheckpointError."""
        folder = _local_folder(spark, location)
        if folder is None or not self._lock(spark, folder, wait_s):
            return
        _remove_first_drafts(folder)
        write_faster(spark)

    def _lock(self, spark: SparkSession, folder: Path, wait_s: float) -> bool:
        """Lock the file, and return whether files can be locked there. The lock is the JVM's, not this process's: the
        JVM writes the checkpoint's files, and may live on when this process has been killed."""
        deadline = time.monotonic() + wait_s
        jvm: Any = spark.sparkContext._jvm
        while True:
            note = _HELD.format(_identity(folder / LOCK))
            try:
                locked = self._locked(jvm, folder / LOCK, note)
            except (Py4JJavaError, PySparkException) as error:
                self._release()
                say(f"{folder / LOCK} cannot be locked ({_why(error)}): start no second job with this checkpoint")
                return False
            if locked:
                self._sign()
                return True
            self._release()
            if time.monotonic() > deadline:
                raise _in_use(folder)
            time.sleep(_POLL_S)

    def _sign(self) -> None:
        """Write into the file who has the lock, if the disk has room for it: it is for a message only."""
        with contextlib.suppress(Py4JJavaError, PySparkException):
            self._file.setLength(0)
            self._file.writeBytes(json.dumps({"host": platform.node(), "pid": os.getpid()}))

    def _locked(self, jvm: Any, lock: Path, note: str) -> bool:  # noqa: ANN401  # Py4J's view of the JVM
        properties = jvm.java.lang.System.getProperties()
        if properties.putIfAbsent(note, str(lock)) is not None:
            return False
        self._note = lambda: properties.remove(note)
        self._file = jvm.java.io.RandomAccessFile(str(lock), "rw")
        # Another file may have replaced it meanwhile, together with its folder.
        return self._file.getChannel().tryLock() is not None and _HELD.format(_identity(lock)) == note


def check_writable(store: Store | None) -> None:
    """Check that this process can write the checkpoint, and that no other one runs on it, if it is on a local disk.
    Writes nothing. Waits for a process that is about to end, and else raises CheckpointError.

    Spark's JVM checks the same when it takes the lock; this check needs no JVM.
    """
    if store is None:
        return  # Spark names the problem when it starts the query
    folder = Path(store.root).absolute()
    for part in (folder, *(folder / name for name in ("offsets", "commits"))):
        if (why := why_unwritable(part)) is not None:
            raise stop("EOS_CHECKPOINT_STORE.lock", location=str(folder), lock=folder / LOCK, why=why)
    for _ in retrying(_WAIT_S):
        if not _is_locked(folder / LOCK):
            return
    raise _in_use(folder)


def _is_locked(lock: Path) -> bool:
    """Return whether another process has a lock of the file. This one has none, so it loses none by looking."""
    try:
        with lock.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EAGAIN)
    return False


def _why(error: Py4JJavaError | PySparkException) -> str:
    text = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return printable(text.partition("\n")[0])


def write_faster(spark: SparkSession) -> None:
    """Set `FASTER` for the session's next queries, where this Spark has it and the user has not chosen another one."""
    if spark.conf.get(MANAGER, None) is None and _has_class(spark, FASTER[MANAGER]):
        for name, value in FASTER.items():
            if spark.conf.get(name, None) is None:
                spark.conf.set(name, value)


def _identity(lock: Path) -> str:
    """Return the file's identity under all its names; it is created if it is missing. This process opens the file, as
    it has no locks to lose. Raises CheckpointError, and OSError for errors that may pass."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("ab"):
            status = lock.stat()
    except OSError as error:
        if may_pass(error):
            raise
        raise stop("EOS_CHECKPOINT_STORE.lock", location=str(lock.parent), lock=lock, why=error.strerror) from None
    return f"{status.st_dev}:{status.st_ino}"


def _remove_first_drafts(checkpoint: Path) -> None:
    """Remove temporary files of a query that was killed while Spark wrote the first file of its offset log. With them,
    Spark starts no query with state. Nothing was planned yet, so nothing was decided."""
    files = {name: list((checkpoint / name).glob("*")) for name in ("offsets", "commits", "state")}
    if not files["commits"] and not files["state"] and all(_FIRST_DRAFT.fullmatch(f.name) for f in files["offsets"]):
        for draft in files["offsets"]:
            draft.unlink(missing_ok=True)


def _has_class(spark: SparkSession, name: str) -> bool:
    """Return whether Spark has the class, which versions of Spark have in different packages."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(name.replace(".", "/") + ".class") is not None


def _local_folder(spark: SparkSession, location: str) -> Path | None:
    """Return the checkpoint's path as Spark resolves it; None unless that is on a local disk."""
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(location)
    try:
        files = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    except (Py4JJavaError, PySparkException):
        return None  # Spark names the problem when it starts the query
    if files.getUri().getScheme() != "file":
        return None
    return Path(files.makeQualified(path).toUri().getPath())


def _in_use(folder: Path) -> EosError:
    try:
        owner = json.loads((folder / LOCK).read_text())
        who = f"process {owner['pid']} on {owner['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return stop("EOS_CHECKPOINT_IN_USE.locked", location=str(folder), folder=folder, holder=who)
