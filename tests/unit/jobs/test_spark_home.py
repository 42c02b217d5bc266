"""Spark's home without the archive of PySpark's modules."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.runner.spark_home import linked, without_archives

PARTS = ("bin", "jars", "sbin")


def test_a_home_is_made_of_what_the_jvm_needs(tmp_path: Path) -> None:
    """Once: a process that starts later, or at the same time, takes the links that are there."""
    installed = tmp_path / "pyspark"
    for name in (*PARTS, "python/lib", "sql"):
        (installed / name).mkdir(parents=True)
    homes = [linked(installed, tmp_path / "cache") for _ in range(2)]
    assert homes[0] == homes[1]
    assert {path.name: path.resolve() for path in homes[0].iterdir()} == {name: installed / name for name in PARTS}


@pytest.fixture
def homes(environ) -> Callable[..., list[str | None]]:
    """``homes(master, cache, theirs)``: SPARK_HOME before, in and behind the block, where the user has set ``theirs``
    or nothing."""

    def homes(master: str, cache: Path, theirs: str | None = None) -> list[str | None]:
        environ(XDG_CACHE_HOME=cache, SPARK_HOME=theirs)
        before = os.environ.get("SPARK_HOME")
        with without_archives(master):
            within = os.environ.get("SPARK_HOME")
        return [before, within, os.environ.get("SPARK_HOME")]

    return homes


def test_the_home_is_named_while_the_jvm_starts(homes, tmp_path: Path) -> None:
    """PySpark's own, without its archive."""
    before, home, behind = homes("local[2]", tmp_path)
    assert (before, behind) == (None, None)
    assert Path(home, "bin", "spark-submit").exists() and not Path(home, "python").exists()


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
def test_elsewhere_the_home_stays_as_it_is(master: str, theirs: str | None, cache: str, homes, tmp_path: Path) -> None:
    """YARN sends the archive from there to its executors; somebody who sets SPARK_HOME has a Spark of their own; and
    where no folder can be made, the start is slower, and that is all."""
    (tmp_path / "file").touch()
    assert homes(master, tmp_path / cache, theirs) == [theirs] * 3
