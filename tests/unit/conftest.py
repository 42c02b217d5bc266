"""The machine that the product finds: its variables, modules, temporary files and clock, as tests set them."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from spark_eos.base import system


class Clock:
    """The monotonic clock: it goes on while our code sleeps, however long anything else takes; and what happens
    ``meanwhile``."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meanwhile: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all that speaks to brokers, and of what is kept for a while."""
    made = Clock()
    monkeypatch.setattr(system, "monotonic", lambda: made.now)
    monkeypatch.setattr(system, "sleep", made.sleep)
    return made


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``environ(SPARK_HOME="/spark", JAVA_HOME=None)``: variables of the environment; one that is None is not set."""

    def put(**variables: object) -> None:
        for name, value in variables.items():
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, str(value))

    return put


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """``not_installed("pyiceberg")``: there is no module of this name, and none within it."""

    def hide(module: str) -> None:
        for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
            monkeypatch.setitem(sys.modules, name, None)

    return hide


@pytest.fixture
def temporary_files_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """``temporary_files_in(folder)``: by default, temporary files are made in this folder."""
    return lambda folder: monkeypatch.setattr(tempfile, "tempdir", str(folder))


@pytest.fixture
def java(environ: Callable[..., None], tmp_path: Path) -> Callable[[str], Path]:
    """``java("17.0.2")``: the program of JAVA_HOME, which only says that it is of this version."""

    def java(version: str) -> Path:
        program = tmp_path / version / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"'\n")
        program.chmod(0o755)
        environ(JAVA_HOME=tmp_path / version)
        return program

    return java


@pytest.fixture
def session_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """``session_of_another_thread(session)``: the process has this session, or none, and this thread none: a thread
    that the user has started has no active session."""
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    return lambda session: monkeypatch.setattr(SparkSession, "_instantiatedSession", session)


@pytest.fixture(params=["refused", "missing"])
def no_files_in_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses files in memory, as by vm.memfd_noexec=2 or in a sandbox, or has none, as macOS."""
    if request.param == "refused":
        refusal = PermissionError(errno.EACCES, "Permission denied")
        monkeypatch.setattr(os, "memfd_create", Mock(side_effect=refusal))
    else:
        monkeypatch.delattr(os, "memfd_create")
