"""The lock of a checkpoint, where the disk does not do as it should. The JVM is a fake."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from jobs.runner import local_checkpoint
from jobs.runner.local_checkpoint import LOCK, LocalCheckpoint
from spark_eos.errors import CheckpointError


class OfTheJvm(Py4JJavaError):
    """As Py4J raises it."""

    def __init__(self, number: int) -> None:
        self.java_exception = SimpleNamespace(toString=lambda: f"java.io.IOException: {os.strerror(number)}")

    def __str__(self) -> str:
        return f"An error occurred while calling o1.x.\n: {self.java_exception.toString()}\n\tat y"


class File:
    """A java.io.RandomAccessFile on a full disk. ``locks``: whether it can be locked."""

    def __init__(self, locks: bool) -> None:
        self._locks = locks
        self.closed = False

    def getChannel(self) -> File:
        return self

    def tryLock(self) -> object:
        if not self._locks:
            raise OfTheJvm(errno.ENOLCK)
        return object()

    def setLength(self, length: int) -> None:
        assert length == 0

    def writeBytes(self, text: str) -> None:
        raise OfTheJvm(errno.ENOSPC)

    def close(self) -> None:
        self.closed = True


def with_file(file: File, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[SparkSession, list[str]]:
    """A session whose JVM opens this file, and the list to which is added what files are written by."""
    written: list[str] = []
    properties = SimpleNamespace(putIfAbsent=lambda name, text: None, remove=lambda name: None)
    java: Any = SimpleNamespace(
        io=SimpleNamespace(RandomAccessFile=lambda name, mode: file),
        lang=SimpleNamespace(System=SimpleNamespace(getProperties=lambda: properties)),
    )
    monkeypatch.setattr(local_checkpoint, "_local_folder", lambda spark, location: folder)
    monkeypatch.setattr(local_checkpoint, "write_faster", lambda spark: written.append("faster"))
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=SimpleNamespace(java=java)))
    return cast(SparkSession, spark), written


def test_a_lock_is_kept_whose_owner_cannot_be_written(tmp_path, monkeypatch, capsys):
    """On a full disk: who has it cannot be told, but it is locked."""
    file = File(locks=True)
    spark, written = with_file(file, tmp_path, monkeypatch)
    with LocalCheckpoint() as taken:
        taken.take(spark, str(tmp_path))
        assert (file.closed, written) == (False, ["faster"])
    assert file.closed and (tmp_path / LOCK).exists()
    assert capsys.readouterr().err == ""


def test_a_checkpoint_that_cannot_be_locked_is_told(tmp_path, monkeypatch, capsys):
    """As on a mount without locks: the job goes on, writes files as Spark does, and says what nobody checks now."""
    file = File(locks=False)
    spark, written = with_file(file, tmp_path, monkeypatch)
    with LocalCheckpoint() as taken:
        taken.take(spark, str(tmp_path))
    assert (file.closed, written) == (True, [])
    said = capsys.readouterr().err
    assert said.startswith(f"{tmp_path / LOCK} cannot be locked") and "No locks available" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "raised"),
    [(errno.EACCES, CheckpointError), (errno.ESTALE, OSError), (errno.EIO, OSError), (errno.ENOSPC, OSError)],
)
def test_a_lock_that_cannot_be_opened_now_is_not_for_somebody_to_mend(number, raised, tmp_path, monkeypatch):
    """Of a disk that is mounted from a server which is away for a moment, the job is told that a restart helps."""
    monkeypatch.setattr(Path, "mkdir", Mock(side_effect=OSError(number, os.strerror(number))))
    with pytest.raises(raised, match=os.strerror(number)):
        local_checkpoint._identity(tmp_path / LOCK)
