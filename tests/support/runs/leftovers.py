"""A folder for temporary files that goes with the tests: a program that is killed does not remove its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

#: Java takes its folder from nowhere else.
_JAVA = "SPARK_SUBMIT_OPTS"


@contextmanager
def removed() -> Iterator[str]:
    """The folder in which this process, the programs that it starts and their Spark make temporary files meanwhile; it
    is removed at the end. Its name is short, as sockets are in there, whose paths may have some 100 bytes."""
    with (
        tempfile.TemporaryDirectory(prefix="eos-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv(_JAVA, f"{os.environ.get(_JAVA, '')} {of_java(folder)}".strip())
        yield folder


def of_java(folder: str) -> str:
    """The option that tells a JVM."""
    return f"-Djava.io.tmpdir={folder}"
