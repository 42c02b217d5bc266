"""`spark-eos recover --drop-planned` on a real broker and a real Spark: a micro-batch that was planned too large, and
is not decided. Outputs are read by a plain consumer.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

import spark_eos
from tests.support.judges.kafka_view import write
from tests.support.queries.replaying import Life, killed
from tests.support.runs.case_cover import one_for_every_day
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT

#: A feed is one micro-batch of the life before, and micro-batch 0 is where it begins.
LARGE = 4


def planned(life: Life, folder: Path, fault: str = "commit.verified=fail") -> None:
    """Two more feeds in one micro-batch, which stops at this point."""
    life.feed()
    life.feed()
    with armed(life.spark, fault, folder / "planned"):
        life.stopped_by("fault injected")


def drop(life: Life, *more: str) -> list[str]:
    return ["recover", str(life.checkpoint), "--drop-planned", *more]


def numbers(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def dropped(life: Life) -> list[str]:
    """The files that all commands have moved."""
    return sorted(file.name for file in (life.checkpoint / "dropped").glob("[0-9]*/*"))


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
    assert dropped(life) == [f".{LARGE}.crc", str(LARGE)]
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
    killed(life, fault, tmp_path, *drop(life, "--yes"))
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


@pytest.fixture
def copy(quiet, tmp_path) -> Path:
    """The checkpoint of a query, with one more micro-batch that is planned."""
    copy = tmp_path / "copy"
    shutil.copytree(quiet.checkpoint, copy)
    shutil.copy(copy / "offsets" / "3", copy / "offsets" / "4")
    return copy


#: Another sink has done the planned micro-batch, and the next one is planned.
FURTHER = {"commits/3": "commits/4", "offsets/4": "offsets/5"}


@pytest.mark.parametrize(
    ("happens", "condition"),
    [
        (lambda copy: (copy / "state" / "0").mkdir(parents=True), "EOS_DROP_REFUSED"),
        (lambda copy: [shutil.copy(copy / one, copy / next_) for one, next_ in FURTHER.items()], "EOS_DROP_REFUSED"),
        (lambda copy: shutil.rmtree(copy / "offsets"), "EOS_DROP_REFUSED"),
        (lambda copy: (copy / "offsets" / "2").unlink(), "EOS_REPLAY_REFUSED"),
        (lambda copy: (copy / "offsets" / "4").write_text("v9\n{}\n{}"), "EOS_CHECKPOINT_FORMAT"),
        (lambda copy: (copy / "metadata").write_text(f'{{"id": "{uuid.UUID(int=0)}"}}'), "EOS_QUERY_UNKNOWN"),
    ],
    ids=["stateful", "elsewhere", "never started", "a gap", "a later Spark", "unknown"],
)
def test_what_is_refused(happens, condition, quiet, copy):
    """What else would have to be taken back, and what nobody can tell; nothing is changed."""
    words = ["recover", str(copy), "--drop-planned"]
    assert quiet.command(*words) == 0
    happens(copy)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    quiet.refused(condition, *words, "--yes")
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_writes_within_foreach_batch_are_refused(spark, cluster, view, sink, topic, tmp_path, capsys):
    """What the function has written elsewhere nobody knows."""
    source, out = topic(), topic()
    write(cluster.bootstrap_servers, source, [(0, "a")], commit=True)
    query = sink()
    life = Life(spark, cluster, view, query, source, out, "", capsys)

    def each(rows: DataFrame, batch: int) -> None:
        writer = spark_eos.batch_writer(rows, batch).option("topic", out)
        writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers).save()

    started = life.frame().writeStream.foreachBatch(each).option("checkpointLocation", str(query.checkpoint))
    assert started.trigger(availableNow=True).start().awaitTermination(TIMEOUT)
    newest = max(int(name) for name in numbers(query.checkpoint / "offsets") if name.isdigit())
    shutil.copy(query.checkpoint / "offsets" / str(newest), query.checkpoint / "offsets" / str(newest + 1))
    life.refused("EOS_DROP_REFUSED", *drop(life, "--yes"))
