"""Spark's home without the archive of PySpark's modules."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.runner.spark_home import linked, without_archives

PARTS = ("bin", "jars", "sbin")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """PySpark's folder."""
    folder = tmp_path / "pyspark"
    for name in (*PARTS, "python/lib", "sql"):
        (folder / name).mkdir(parents=True)
    return folder


def test_processes_that_start_at_once_share_a_home(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes in a fresh cache both find nothing there: the second takes what the first has just made."""
    link = Path.symlink_to

    def too_late(path: Path, target: Path) -> None:
        link(path, target)  # the other process
        link(path, target)

    monkeypatch.setattr(Path, "symlink_to", too_late)
    home = linked(installed, tmp_path / "cache")
    assert {path.name: path.resolve() for path in home.iterdir()} == {name: installed / name for name in PARTS}


def test_the_home_is_named_while_the_jvm_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is the same one the next time."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    homes = []
    for _ in range(2):
        with without_archives("local[2]"):
            homes.append(os.environ["SPARK_HOME"])
        assert "SPARK_HOME" not in os.environ
    assert len(set(homes)) == 1
    assert Path(homes[0], "bin", "spark-submit").exists()
    assert not Path(homes[0], "python").exists()


@pytest.mark.parametrize(
    ("master", "theirs", "cache"),
    [
        ("yarn", None, ""),
        ("k8s://https://h", None, ""),
        ("", None, ""),
        ("local", "/theirs", ""),
        ("local", None, "file"),
    ],
)
def test_elsewhere_the_home_stays_as_it_is(
    master: str, theirs: str | None, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """YARN sends the archive from there to its executors; somebody who sets SPARK_HOME has a Spark of their own; and
    where no folder can be made, the start is slower, and that is all."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    if theirs is not None:
        monkeypatch.setenv("SPARK_HOME", theirs)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
    with without_archives(master):
        assert os.environ.get("SPARK_HOME") == theirs
    assert os.environ.get("SPARK_HOME") == theirs
