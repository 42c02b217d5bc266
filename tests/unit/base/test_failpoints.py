"""Named points that are armed by a file, which may change while the process runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_eos.base import failpoints


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that this process reads its faults from; it is not there."""
    monkeypatch.setattr(failpoints, "_file", tmp_path / "armed")
    monkeypatch.setenv("SPARK_EOS_FAULTS_DIR", str(tmp_path))
    return tmp_path / "armed"


def test_without_the_file_nothing_is_armed(file: Path):
    """Points cost nothing and leave nothing where no fault is asked for."""
    assert not failpoints.armed("commit.decided")
    failpoints.reach("commit.decided")
    assert not list(file.parent.iterdir())


def test_the_file_of_the_moment_counts(file: Path):
    """The second time after it was written, and no more when it is gone."""
    failpoints.reach("commit.decided")
    file.write_text("commit.decided=fail@2, commit.ended=fail")
    assert failpoints.armed("commit.decided") and not failpoints.armed("commit.entered")
    failpoints.reach("commit.decided")
    failpoints.reach("commit.entered")
    with pytest.raises(failpoints.FaultInjected, match=r"commit\.decided"):
        failpoints.reach("commit.decided")
    file.unlink()
    failpoints.reach("commit.ended")


def test_a_fault_that_is_none_is_named(file: Path):
    """A misspelt point is an error, not a fault that never strikes."""
    file.write_text("commit.undecided=fail")
    with pytest.raises(ValueError, match=r"'commit\.undecided=fail' is not point=action"):
        failpoints.reach("commit.decided")
