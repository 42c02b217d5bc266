"""`spark-eos recover --drop-planned` on a real broker and a real Spark: a micro-batch that was planned too large, and
is not decided. Outputs are read by a plain consumer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.queries.replaying import Life, killed
from tests.support.runs.case_cover import one_for_every_day
from tests.support.spark.session_faults import armed

#: A feed is one micro-batch of the life before, and micro-batch 0 is where it begins.
LARGE = 4


def planned(life: Life, folder: Path) -> None:
    """Two more feeds in one micro-batch, which stops before its decision."""
    life.feed()
    life.feed()
    with armed(life.spark, "commit.verified=fail", folder / "planned"):
        life.stopped_by("fault injected")


def drop(life: Life, *more: str) -> list[str]:
    return ["recover", str(life.checkpoint), "--drop-planned", *more]


def numbers(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def run_smaller(life: Life) -> None:
    """Until the input is drained, with two offsets at a time."""
    life.limit = 2
    life.run()
    assert life.counts() == life.expected(1, 1, 1, 1, 1)
    assert life.view.group(life.group, life.source) == life.view.ends(life.source)
    assert len([name for name in numbers(life.checkpoint / "commits") if name.isdigit()]) > LARGE + 3


def test_a_micro_batch_that_is_too_large(life, tmp_path):
    """Whatever the limit is by now, it would be as large at each start; dropped, its rows come in smaller ones."""
    planned(life, tmp_path)
    assert life.command(*drop(life)) == 0
    assert f"{life.source}-0" in life.capsys.readouterr().out
    assert {str(LARGE), f".{LARGE}.crc"} <= set(numbers(life.checkpoint / "offsets"))
    told = life.told(*drop(life, "--yes"))
    assert (told["batch"], told["dry_run"], told["left"]) == (LARGE, False, [])
    (part,) = told["partitions"]
    assert (part["topic"], part["end"]) == (life.source, life.end)
    assert not {str(LARGE), f".{LARGE}.crc"} & set(numbers(life.checkpoint / "offsets"))
    moved = (life.checkpoint / "dropped").glob("[0-9]*/*")
    assert sorted(file.name for file in moved) == [f".{LARGE}.crc", str(LARGE)]
    assert not life.view.held(life.out)
    run_smaller(life)


@pytest.mark.parametrize(
    "fault",
    one_for_every_day(
        "a drop that is killed", ["drop.halted=die", "drop.moved=die", "drop.moved=die@2", "drop.resumed=die"]
    ),
)
def test_killed_between_two_steps(fault, life, tmp_path):
    """No start gets past that, and writes nothing, whatever it has planned; the command, repeated, finishes."""
    planned(life, tmp_path)
    killed(life.cluster.bootstrap_servers, fault, tmp_path / "faults", *drop(life, "--yes"))
    if fault == "drop.resumed=die":
        life.refused("EOS_DROP_REFUSED", *drop(life, "--yes"))
    else:
        assert f"{' '.join(drop(life, '--yes'))}" in life.stopped_by("EOS_DROP_UNFINISHED")
        shown = life.status()
        assert "EOS_DROP_UNFINISHED" in shown["next"]
        words = ["replay", str(life.checkpoint), "--new", str(life.new), "--to-batch", "1", "--again"]
        life.refused("EOS_REPLAY_NOT_FINISHED", *words)
        assert life.command(*drop(life, "--yes")) == 0
    run_smaller(life)
