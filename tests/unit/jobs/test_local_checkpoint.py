"""The lock of a checkpoint, where the disk does not do as it should. The JVM is a fake."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock

import pytest
from py4j.protocol import Py4JJavaError

from jobs.runner.local_checkpoint import FASTER, LOCK, LocalCheckpoint
from spark_eos.errors import CheckpointError


class OfTheJvm(Py4JJavaError):
    """As Py4J raises it."""

    def __init__(self, number: int) -> None:
        self.java_exception = SimpleNamespace(toString=lambda: f"java.io.IOException: {os.strerror(number)}")

    def __str__(self) -> str:
        return f"An error occurred while calling o1.x.\n: {self.java_exception.toString()}\n\tat y"


@pytest.fixture
def spark(tmp_path: Path) -> MagicMock:
    """A session whose settings are Spark's own, with the checkpoint on a local disk."""
    spark = MagicMock()
    spark.conf.get.return_value = None
    jvm = spark.sparkContext._jvm
    jvm.java.lang.System.getProperties().putIfAbsent.return_value = None
    files = jvm.org.apache.hadoop.fs.Path().getFileSystem()
    files.getUri().getScheme.return_value = "file"
    files.makeQualified().toUri().getPath.return_value = str(tmp_path)
    return spark


@pytest.fixture
def file(spark: MagicMock) -> MagicMock:
    """The java.io.RandomAccessFile of the lock."""
    return spark.sparkContext._jvm.java.io.RandomAccessFile()


def test_a_lock_is_kept_whose_owner_cannot_be_written(spark, file, tmp_path, capsys):
    """On a full disk: who has it cannot be told, but it is locked."""
    file.writeBytes.side_effect = OfTheJvm(errno.ENOSPC)
    with LocalCheckpoint() as taken:
        taken.take(spark, str(tmp_path))
        assert not file.close.called
        assert spark.conf.set.call_args_list == [(setting,) for setting in FASTER.items()]
    assert file.close.called and (tmp_path / LOCK).exists()
    assert capsys.readouterr().err == ""


def test_a_checkpoint_that_cannot_be_locked_is_told(spark, file, tmp_path, capsys):
    """As on a mount without locks: the job goes on, writes files as Spark does, and says what nobody checks now."""
    file.getChannel().tryLock.side_effect = OfTheJvm(errno.ENOLCK)
    with LocalCheckpoint() as taken:
        taken.take(spark, str(tmp_path))
        assert file.close.called and not spark.conf.set.called
    said = capsys.readouterr().err
    assert said.startswith(f"{tmp_path / LOCK} cannot be locked") and "No locks available" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("number", "raised"), [(errno.EACCES, CheckpointError), (errno.ESTALE, OSError)])
def test_a_lock_that_cannot_be_opened_now_is_not_for_somebody_to_mend(number, raised, spark, tmp_path, monkeypatch):
    """Of a disk that is mounted from a server which is away for a moment, the job is told that a restart helps.
    tests/unit/spark has the other numbers."""
    monkeypatch.setattr(Path, "mkdir", Mock(side_effect=OSError(number, os.strerror(number))))
    with LocalCheckpoint() as taken, pytest.raises(raised, match=os.strerror(number)):
        taken.take(spark, str(tmp_path))
