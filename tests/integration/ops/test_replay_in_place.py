"""`spark-eos replay --in-place` on a real broker and a real Spark, also killed between its steps."""

from __future__ import annotations

import shutil

import pytest

from tests.support.replaying import Life, killed, stalled


def back(life: Life, *more: str) -> list[str]:
    return ["replay", str(life.checkpoint), "--in-place", *(more or ("--to-batch", "1"))]


def numbers(life: Life, log: str) -> list[str]:
    return sorted(file.name for file in (life.checkpoint / log).iterdir())


def test_a_query_goes_back(life):
    """What it has done since is written again by the same checkpoint; what was moved is kept, with its checksums."""
    assert life.command(*back(life)) == 0
    assert len(numbers(life, "offsets")) == 8
    assert life.command(*back(life), "--yes") == 0
    assert numbers(life, "offsets") == numbers(life, "commits") == [".0.crc", ".1.crc", "0", "1"]
    for log in ("offsets", "commits"):
        assert numbers(life, f"replayed/{log}") == [".2.crc", ".3.crc", "2", "3"]
    assert life.view.group(life.group, life.source) == {(life.source, 0): life.end // 3}
    life.feed()
    life.run()
    assert life.counts() == life.expected(1, 2, 2, 1)
    assert life.view.group(life.group, life.source) == life.view.ends(life.source)
    assert life.command(*back(life, "--to-batch", "2"), "--yes") == 0
    life.run()
    assert life.counts() == life.expected(1, 2, 2, 1)  # micro-batch 2 had all of them this time


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("replay.halted=die", marks=pytest.mark.chaos),
        "replay.moved=die",
        pytest.param("replay.moved=die@5", marks=pytest.mark.chaos),
        pytest.param("replay.begun=die", marks=pytest.mark.chaos),
    ],
)
def test_killed_while_it_goes_back(fault, life, tmp_path):
    """No start gets past that, whatever is left of the checkpoint; the command that the error names finishes it."""
    killed(life, fault, tmp_path, *back(life), "--yes")
    life.feed()
    if fault == "replay.begun=die":
        life.refused("EOS_REPLAY_REFUSED", *back(life, "--finish", "--yes"))
    else:
        text = life.stopped_by("EOS_", life.checkpoint)
        assert "EOS_REPLAY_UNFINISHED" in text
        assert f"{' '.join(back(life, '--finish', '--yes'))}" in text
        assert life.command(*back(life, "--finish", "--yes")) == 0
    life.run()
    assert life.counts() == life.expected(1, 2, 2, 1)


@pytest.mark.parametrize("point", ["replay.moved@3", pytest.param("replay.halted", marks=pytest.mark.chaos)])
def test_a_command_that_stalls_while_the_query_goes_on(point, life, tmp_path):
    """Somebody else has finished it; when it wakes up, it moves nothing of what the query has done since."""
    with stalled(life, point, tmp_path, *back(life), "--yes"):
        assert life.command(*back(life, "--finish", "--yes")) == 0
        life.feed()
        life.run()
        life.feed()
        life.run()
        before = {log: numbers(life, log) for log in ("offsets", "commits")}
    assert {log: numbers(life, log) for log in ("offsets", "commits")} == before
    life.feed()
    life.run()
    assert life.counts() == life.expected(1, 2, 2, 1, 1, 1)


def test_queries_that_do_not_go_back(quiet, tmp_path):
    """Another sink has had the last micro-batch: it would skip what has a number that it knows."""
    life = quiet
    life.refused("EOS_REPLAY_REFUSED", *back(life, "--to-timestamp", "1500000000000"))
    copy = tmp_path / "copy"
    shutil.copytree(life.checkpoint, copy)
    for log in ("offsets", "commits"):
        shutil.copy(copy / log / "3", copy / log / "4")
    life.refused("EOS_REPLAY_REFUSED", "replay", str(copy), "--in-place", "--to-batch", "1")


@pytest.mark.chaos
def test_a_checkpoint_that_cannot_be_changed(life):
    """It says so, and how to go on; no start gets past it meanwhile."""
    (life.checkpoint / "replayed").write_text("a file where the folder is to be")
    life.refused("EOS_REPLAY_NOT_WRITTEN", *back(life), "--yes")
    life.feed()
    life.stopped_by("EOS_REPLAY_UNFINISHED")
    (life.checkpoint / "replayed").unlink()
    assert life.command(*back(life, "--finish", "--yes")) == 0
    life.run()
    assert life.counts() == life.expected(1, 2, 2, 1)
