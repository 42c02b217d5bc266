"""Spark's home for short runs: made once, by whichever process comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import fast_start

PARTS = ("bin", "jars", "sbin")


def test_processes_that_start_at_once_share_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes in a fresh cache both find nothing there: the second takes what the first has just made."""
    installed = tmp_path / "pyspark"
    for name in PARTS:
        (installed / name).mkdir(parents=True)
    monkeypatch.setattr(fast_start, "cache_dir", lambda: tmp_path / "cache")
    link = Path.symlink_to

    def too_late(path: Path, target: Path) -> None:
        link(path, target)  # the other process
        link(path, target)

    monkeypatch.setattr(Path, "symlink_to", too_late)
    home = fast_start._home(installed)
    assert {path.name: path.resolve() for path in home.iterdir()} == {name: installed / name for name in PARTS}
