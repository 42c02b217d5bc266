"""A checkpoint of which a file is torn, empty, missing or of yesterday: a named error, soon, and what it says helps.

The cases share one query, and begin with copies of its checkpoint. Whatever happens to a copy, every row of the output
is there once.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_eos
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView, write
from tests.support.queries.sink_queries import Sink, ended_by, kafka_frame
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for

LAST = 3


@dataclass
class Life:
    """A query that has ended in good order, with the micro-batches 0 to 3. ``today`` and ``yesterday`` are what its
    checkpoint was after the last one, and after micro-batch 1."""

    spark: SparkSession
    cluster: DevCluster
    view: KafkaView
    source: str
    out: str
    group: str
    today: Path
    yesterday: Path
    values: list[str]

    def frame(self) -> DataFrame:
        return kafka_frame(self.spark, self.cluster, self.source)

    def query(self, folder: Path) -> Sink:
        return Sink(self.cluster, folder, topic=self.out, offsets__group__id=self.group)


@pytest.fixture(scope="module")
def life(spark, files_by_spark, cluster, view, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    folder = tmp_path_factory.mktemp("damaged")
    for topic in ("damaged-in", "damaged-out"):
        cluster.create_topic(topic)
    there = Life(
        spark, cluster, view, "damaged-in", "damaged-out", "damaged", folder / "today", folder / "yesterday", []
    )
    query = there.query(folder)
    for n in range(LAST):
        write(cluster.bootstrap_servers, there.source, [(0, f"{n}.{i}") for i in range(3)])
        there.values += [f"{n}.{i}" for i in range(3)]
        query.run(there.frame())
        shutil.copytree(query.checkpoint, there.yesterday if n == 0 else folder / f"copy-{n}")
    shutil.copytree(query.checkpoint, there.today)
    assert sorted(int(f.name) for f in (there.today / "commits").glob("[0-9]*")) == list(range(LAST + 1))
    yield there
    for started in spark.streams.active:
        started.stop()


@pytest.fixture
def query(life: Life, tmp_path: Path) -> Iterator[Sink]:
    """With a copy of the checkpoint; at the end, every row is there once."""
    sink = life.query(tmp_path)
    shutil.copytree(life.today, sink.checkpoint)
    yield sink
    assert life.view.values(life.out) == life.values
    assert life.view.group(life.group, life.source) == life.view.ends(life.source)


Tear = Callable[[bytes], bytes]


def empty(data: bytes) -> bytes:
    """Created, and never written to disk."""
    return b""


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def zeros(data: bytes) -> bytes:
    """The length was on disk, and the content was not."""
    return bytes(len(data))


def without_its_last_line(data: bytes) -> bytes:
    return data.rpartition(b"\n")[0]


def tear(checkpoint: Path, name: str, how: Tear) -> Path:
    """Damage a file; its checksum is gone."""
    file = checkpoint / name
    file.write_bytes(how(file.read_bytes()))
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return file


def remove(checkpoint: Path, name: str) -> None:
    """A file with its checksum, as the hints say."""
    file = checkpoint / name
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def stopped(query: Sink, life: Life) -> spark_eos.Reason:
    """Why the query stops, in time."""
    with pytest.raises(Exception) as caught:
        query.run(life.frame())
    found = spark_eos.reason(caught.value)
    assert found is not None, f"an error without a name: {caught.value}"
    return found


#: What the hint says of each file.
SAYS = {f"offsets/{LAST}": "'offsets'", f"commits/{LAST}": "'commits'", "metadata": '{"id":"QUERY ID"}'}
DAILY = [(f"offsets/{LAST}", without_its_last_line), (f"commits/{LAST}", half), ("metadata", half)]
RARE = [(name, how) for name in SAYS for how in (empty, half, zeros) if (name, how) not in DAILY]


@pytest.mark.parametrize(("name", "how"), [*DAILY, *(pytest.param(*case, marks=pytest.mark.chaos) for case in RARE)])
def test_a_file_that_is_torn_in_a_crash(name, how, life, query):
    """Offsets of a micro-batch that is not in the commit log: without the file, Spark plans it anew; it was decided
    already. Without a file of the commit log, Spark runs the micro-batch again, and the sink finds it decided. With the
    query's id written into the metadata, the query goes on."""
    whole = json.loads((query.checkpoint / "metadata").read_text())
    if name.startswith("offsets"):
        query.forget(LAST)
    tear(query.checkpoint, name, how)
    found = stopped(query, life)
    assert found.condition == "EOS_CHECKPOINT_DAMAGED"
    assert SAYS[name] in found.hint
    if name == "metadata":
        (query.checkpoint / name).write_text(json.dumps({"id": whole["id"]}))
    else:
        remove(query.checkpoint, name)
    query.run(life.frame())


def test_metadata_that_are_missing(life, query):
    """Spark would begin a new query on the old logs; it says so by itself, and what helps is the same."""
    remove(query.checkpoint, "metadata")
    assert stopped(query, life).condition == "EOS_CHECKPOINT_DAMAGED"


def test_the_offsets_of_the_micro_batch_before_are_missing(life, query):
    """Spark does not know where the last one begins."""
    query.forget(LAST)
    remove(query.checkpoint, f"offsets/{LAST - 1}")
    found = stopped(query, life)
    assert found.condition == "EOS_CHECKPOINT_DAMAGED"
    assert f"offsets/{LAST - 1}" in found.message


def test_a_checksum_that_was_left_behind(life, query):
    """Spark takes it for another query's file. Without it, the query goes on."""
    query.forget(LAST)
    (query.checkpoint / "offsets" / str(LAST)).unlink()
    assert stopped(query, life).condition == "EOS_CHECKPOINT_IN_USE"
    (query.checkpoint / "offsets" / f".{LAST}.crc").unlink()
    query.run(life.frame())


def test_the_checkpoint_of_yesterday(life, query):
    """A backup from before the last two micro-batches: the rows of both would be in the next one."""
    shutil.rmtree(query.checkpoint)
    shutil.copytree(life.yesterday, query.checkpoint)
    assert stopped(query, life).condition == "EOS_CHECKPOINT_BEHIND"


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_one_log_of_yesterday(log, life, query):
    """Old offsets are behind the output. With old commits, the last micro-batch runs again, and compares equal."""
    shutil.rmtree(query.checkpoint / log)
    shutil.copytree(life.yesterday / log, query.checkpoint / log)
    if log == "offsets":
        assert stopped(query, life).condition == "EOS_CHECKPOINT_BEHIND"
    else:
        query.run(life.frame())


def test_an_offset_log_that_is_gone(life, query):
    """Spark 4.2 says "assertion failed". Without the commit log, too, it begins with micro-batch 0, long decided."""
    shutil.rmtree(query.checkpoint / "offsets")
    found = stopped(query, life)
    assert found.condition == "EOS_CHECKPOINT_DAMAGED"
    assert "The checkpoint's 'offsets' has no files" in found.message and "'commits'" in found.hint
    shutil.rmtree(query.checkpoint / "commits")
    assert stopped(query, life).condition == "EOS_CHECKPOINT_BEHIND"


def test_an_offset_log_that_is_torn_while_its_batch_runs(spark, cluster, sink, topic, view, tmp_path):
    """The offsets that it should publish cannot be told: nothing is decided, and nothing stays open."""
    source, out, group = topic(), topic(), f"group-{uuid.uuid4()}"
    write(cluster.bootstrap_servers, source, [(0, "a")])
    query = sink(topic=out, offsets__group__id=group)
    with armed(spark, "prepare.prepared=hold", tmp_path / "faults") as fault:
        started = query.start(kafka_frame(spark, cluster, source))
        fault.wait()
        log = query.checkpoint / "offsets" / "1"
        whole = log.read_bytes()
        tear(query.checkpoint, "offsets/1", half)
        fault.release()
        text = ended_by(started, "EOS_CHECKPOINT_DAMAGED")
    assert "offsets/1" in text
    assert "backup" in text
    assert view.values(out) == []
    assert view.group(group, source) == {(source, 0): 0}
    wait_for(lambda: not view.held(out), "the abort")
    log.write_bytes(whole)
    query.run(kafka_frame(spark, cluster, source))
    assert view.values(out) == ["a"]
    assert view.group(group, source) == view.ends(source)
