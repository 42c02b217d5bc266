"""An ingest: each file's rows once, whoever dies, and however many do it at once."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.admin import ConfigResource
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spark_eos
from spark_eos.errors import EosError
from tests.support.queries.ingests import FAILED, THROUGH_SPARK, WAYS, Setting
from tests.support.runs.case_cover import one_for_every_day
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT

POINTS = ["prepare.wrote", "prepare.prepared", "commit.entered", "commit.verified", "commit.noted", "commit.decided"]
POINTS += ["commit.between", "commit.ended", "commit.cleaned"]
KILLS = one_for_every_day("kills of an ingest", [*itertools.product(POINTS, WAYS)])
#: Which way decides, and which one repairs.
REPAIRS = one_for_every_day("an ingest's repair", [*itertools.product(WAYS, repeat=2)])


def test_csv_is_taken_once_and_noted(setting: Setting):
    """Types, quoted line breaks, a header; later runs, which know nothing of the first, take what is new."""
    setting.put("a.csv", "n;name", '1;"one', 'and more"', "2;two")
    how = {
        "format": "csv",
        "schema": "n INT, name STRING",
        "header": "true",
        "delimiter": ";",
        "sql": "SELECT string(n) AS key, to_json(struct(n, name, _line)) AS value FROM input",
    }
    setting.run(**how)
    setting.put("b.csv", "n;name", "3;three")
    (setting.folder / "_draft.csv").write_text("n;name\n4;no")
    setting.run(**how)
    setting.run(**how)
    expected = [(1, "one\nand more", 2), (2, "two", 4), (3, "three", 2)]
    assert [tuple(json.loads(value).values()) for value in setting.there()] == expected
    assert setting.names() == ["a.csv", "b.csv"]
    first = next(note for note in setting.noted() if str(note["uri"]).endswith("/a.csv"))
    file = setting.folder / "a.csv"
    assert (first["uri"], first["topic"], first["size"]) == (f"file://{file}", setting.topic, file.stat().st_size)


def test_lines_of_json_go_on_as_they_are(setting: Setting, capsys: pytest.CaptureFixture[str]):
    """Past the JVM, whatever they are, but for blank ones; a run through Spark, which parses them, goes on behind."""
    setting.put("a.json", '{"n": 1}', "", " \t", '{"n":  2', "{}")
    setting.put("b.json")
    setting.run(format="json", sql=None)
    assert setting.there() == ['{"n":  2', '{"n": 1}', "{}"]
    assert "2 files, 3 in, 3 out" in capsys.readouterr().err
    setting.put("c.json", '{"n": 3}')
    how = {"format": "json", "schema": "n INT", "sql": "SELECT string(n) AS value FROM input"}
    setting.run(**how)
    setting.put("d.json", '{"n": 4 }')
    setting.run(format="json", sql=None)
    assert setting.there() == ["3", '{"n":  2', '{"n": 1}', '{"n": 4 }', "{}"]
    assert setting.names() == ["a.json", "b.json", "c.json", "d.json"]


def test_columns_of_parquet_that_are_the_topics(setting: Setting):
    """Past the JVM: keys, values that are null, headers; a file with other columns is another micro-batch."""
    headers = pa.array(
        [[{"key": "h", "value": b"1"}], None], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    )
    pq.write_table(
        pa.table({"key": ["k", "l"], "value": ["a", None], "headers": headers}), setting.folder / "a.parquet"
    )
    pq.write_table(pa.table({"value": pa.array(["b"]).dictionary_encode()}), setting.folder / "b.parquet")
    setting.run(format="parquet", sql=None)
    rows = [(row.key, row.value, row.headers) for row in setting.view.rows(setting.topic, committed=True)]
    assert sorted(rows, key=str) == [(None, b"b", ()), (b"k", b"a", (("h", b"1"),)), (b"l", None, ())]
    assert setting.names() == ["a.parquet", "b.parquet"]


def test_a_row_that_is_too_large(setting: Setting):
    """The error names the longest record of the files, and nothing of the micro-batch is visible."""
    setting.put("a", "one")
    setting.put("b", "two", "x" * 1_500_000, "three")
    message = setting.fails("EOS_ROW_TOO_LARGE", format="text", sql=None)
    assert f"line 2 of file://{setting.folder}/b, with 1,500,000 bytes" in message
    assert setting.there() == []


@pytest.mark.parametrize("bytes_here", [0, 1 << 20])
def test_digests_by_tasks_and_by_the_driver(bytes_here: int, setting: Setting, monkeypatch: pytest.MonkeyPatch):
    """Whoever reads a file first, its digest is that of its bytes, and a copy is found."""
    monkeypatch.setattr("jobs.files.ingest.BYTES_READ_HERE", bytes_here)
    files = [setting.put(name, *(f"{name} {n}" for n in range(n))) for n, name in enumerate("abc")]
    setting.run(sql=None)
    digests = {f"blake2b-{hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()}" for file in files}
    assert {note["digest"] for note in setting.noted()} == digests
    setting.put("d", "c 0", "c 1")
    setting.fails("EOS_FILE_COPIED", sql=None)
    ingest = setting.ingest(sql=None)
    due = ingest._folder.files()
    (setting.folder / "d").unlink()
    with pytest.raises(FAILED) as raised:
        ingest._read(due)
    found = spark_eos.reason(raised.value)
    assert found is not None and found.condition == "EOS_FILE_CHANGED_WHILE_READ", raised.value
    assert setting.there() == ["b 0", "c 0", "c 1"]


@pytest.mark.parametrize("way", [THROUGH_SPARK, "past the JVM"])
def test_a_file_that_changes_between_plan_and_task(way: str, setting: Setting):
    """Also where its size and time are what they were: the tasks compare what they have read. What they had begun is
    aborted when the job has its error."""
    file = setting.put("a", "one", "two")
    ingest = setting.ingest(**WAYS[way])  # type: ignore[arg-type]
    splits = ingest._plan(ingest._folder.files())
    was = file.stat()
    file.write_text("one\nTWO\n")
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    with pytest.raises(FAILED, match="EOS_FILE_CHANGED_WHILE_READ"):
        ingest._write(splits)
    assert setting.view.open_transactions(setting.query) == set()
    assert setting.there() == [] and setting.noted() == []
    setting.run()
    assert setting.there() == ["TWO", "one"]


def test_a_file_that_changes_after_it_was_read_ahead(setting: Setting):
    """Files of the next micro-batch are read while one is written: a file that was written to since then is read again,
    also where its size and modification time are as they were."""
    for name in "abcd":
        setting.put(name, name)
    ingest = setting.ingest(sql=None, maxFilesPerTrigger=2)
    ingest.take()
    ahead = {Path(file.uri.removeprefix("file://")): read.result().digest for file, read in ingest._ahead.items()}
    c, d = sorted(ahead)
    assert ahead[c] == f"blake2b-{hashlib.blake2b(c.read_bytes(), digest_size=16).hexdigest()}"
    was = c.stat()
    c.write_text("C\n")
    os.utime(c, ns=(was.st_atime_ns, was.st_mtime_ns))
    d.write_text("dd\n")
    ingest.take()
    assert setting.there() == ["C", "a", "b", "dd"]
    assert [Path(str(note["uri"])).name for note in setting.noted()].count("c") == 1


@pytest.mark.parametrize(("point", "way"), KILLS)
def test_a_process_that_dies(point: str, way: str, setting: Setting, tmp_path: Path):
    """The next run finds out what was taken: no row is lost or doubled, and each file is noted once."""
    setting.put("a", *(f"a {n}" for n in range(50)))
    setting.run(**WAYS[way])
    setting.put("b", *(f"b {n}" for n in range(50)))
    setting.put("c", *(f"c {n}" for n in range(50)))
    if point.startswith("commit."):  # the driver's own process commits
        setting.dies(point, tmp_path / "faults", **WAYS[way])
    else:
        with armed(setting.spark, f"{point}=die", tmp_path / "faults") as fault:
            setting.fails(**WAYS[way])
            assert fault.marker.exists()
    setting.put("d", "d 0")
    setting.run(**WAYS[way])
    assert setting.there() == sorted([f"{name} {n}" for name in "abc" for n in range(50)] + ["d 0"])
    assert setting.names() == ["a", "b", "c", "d"]


@pytest.mark.parametrize("point", one_for_every_day("an ingest's task", ["prepare.wrote", "prepare.prepared"]))
def test_a_task_that_is_tried_again(point: str, setting: Setting, tmp_path: Path):
    """Past the JVM, its worker dies with rows in an open transaction: the next attempt has one of its own, which alone
    is decided, and the commit aborts the first one."""
    for name in "ab":
        setting.put(name, *(f"{name} {n}" for n in range(50)))
    with setting.program(f"{point}=die", tmp_path / "faults", {"spark.master": "local[2, 2]"}) as program:
        assert program.ended() == 0, program.log()
        assert (program.folder / point).exists(), program.log()
    assert setting.view.open_transactions(setting.query) == set()
    assert setting.there() == sorted(f"{name} {n}" for name in "ab" for n in range(50))
    assert setting.names() == ["a", "b"]


@pytest.mark.parametrize(("way_before", "way"), REPAIRS)
def test_rows_that_were_lost_after_the_decision(way_before: str, way: str, setting: Setting, tmp_path: Path):
    """The next run writes just these again, from the same splits, although it would deal the files in another way and
    the folder has others by now; if the file has another content by then, it stops. Whichever way has decided."""
    first, then = WAYS[way_before], WAYS[way]
    setting.put("a", *(f"a {n}" for n in range(50)))
    file = setting.put("b", *(f"b {n}" for n in range(50)))
    setting.dies("commit.decided", tmp_path / "faults", tasks=2, **first)
    lost = max(setting.view.open_transactions(setting.query))  # that of the second file
    setting.view.end_transaction(lost, commit=False)
    setting.put("0", "0")
    right = file.read_text()
    file.write_text(right.upper())
    setting.fails("EOS_FILE_NEEDED", tasks=1, **then)
    file.unlink()
    setting.fails("EOS_FILE_NEEDED", tasks=1, **then)
    file.write_text(right)
    setting.run(tasks=1, **then)
    assert setting.there() == sorted(["0", *(f"{name} {n}" for name in "ab" for n in range(50))])
    assert setting.names() == ["0", "a", "b"]


def test_spark_parses_without_pandas(setting: Setting, monkeypatch: pytest.MonkeyPatch):
    """Which the library does not install, and PySpark asks for here and there."""
    setting.put("a", "1", "2")
    monkeypatch.setitem(sys.modules, "pandas", None)
    setting.run(**WAYS[THROUGH_SPARK])
    assert setting.there() == ["1", "2"]


def test_two_at_once(setting: Setting):
    """Who comes later takes over, also what the first one had planned; the first one stops by name."""
    setting.put("a", "a")
    first = setting.ingest()
    first.take()
    setting.put("b", "b")
    planned = first._plan([file for file in first._folder.files() if first._selection.is_due(file)])
    second = setting.ingest()
    with pytest.raises(FAILED, match=r"EOS_SUPERSEDED.*The ingest was started twice"):
        first._write(planned)
    second.take()
    with pytest.raises(FAILED, match="EOS_SUPERSEDED"):
        first._write(planned)
    setting.put("c", "c")
    second.take()
    assert setting.there() == ["a", "b", "c"]
    assert setting.names() == ["a", "b", "c"]


NOTHING = [
    "SELECT string(n) AS value FROM input WHERE 1 = 0",
    "SELECT string(n) AS value FROM input WHERE n IS NULL AND n IS NOT NULL",
    "SELECT string(n) AS value FROM input LIMIT 0",
    "SELECT string(n) AS value FROM VALUES (1) AS t(n) WHERE 1 = 0",
    "SELECT string(n) AS value FROM input JOIN (SELECT id AS n FROM range(9) WHERE rand() > 1) USING (n)",
]


@pytest.mark.parametrize("sql", one_for_every_day("a transform that makes no rows", NOTHING))
def test_a_transform_that_makes_no_rows(sql: str, setting: Setting, capsys: pytest.CaptureFixture[str]):
    """The files are read all the same, one micro-batch after the other: so a malformed row is an error."""
    setting.put("a", "1", "2")
    setting.put("b", "3")
    how = {"format": "csv", "schema": "n INT", "sql": sql, "maxFilesPerTrigger": 1}
    setting.run(**how)
    said = capsys.readouterr().err
    assert ("1 file, 2 in, 0 out" in said, "1 file, 1 in, 0 out" in said) == (True, True), said
    assert (setting.there(), setting.names()) == ([], ["a", "b"])
    setting.put("c", "x")
    setting.fails("EOS_JOB_MALFORMED_ROW", **how)
    assert setting.names() == ["a", "b"]


def test_a_limit_does_not_hide_malformed_rows(setting: Setting):
    """Spark would end reading before it comes to them."""
    setting.put("a", *map(str, range(100)), "x")
    setting.fails(
        "EOS_JOB_MALFORMED_ROW", format="csv", schema="n INT", sql="SELECT string(n) AS value FROM input LIMIT 1"
    )


def test_rows_that_are_left_out_are_counted(setting: Setting, capsys: pytest.CaptureFixture[str]):
    """Two values on a line are no row, nor is one with something behind it."""
    setting.put("a", '{"n": 1}', '{"n": 2}{"n": 3}', '{"n": 4} ]', "\u3000", '{"n": 5}\r{"n": 6}')
    setting.run(format="json", schema="n INT", onMalformed="drop", sql="SELECT string(n) AS value FROM input")
    assert setting.there() == ["1", "5", "6"]
    assert "1 file, 6 in, 3 out, 3 dropped" in capsys.readouterr().err


def test_notes_that_are_in_another_topic_or_that_their_topic_no_longer_keeps(setting: Setting):
    """Nobody would find there what was taken. The next start says so, before any is deleted."""
    setting.put("a", "a")
    notes = f"{setting.topic}-notes"
    setting.run(notes=notes)
    with pytest.raises(EosError, match="EOS_INGEST_NOTES_LOST"):
        setting.ingest(notes="other-notes")
    assert "other-notes" not in setting.view.admin.list_topics(timeout=TIMEOUT).topics
    policy = ConfigResource(ConfigResource.Type.TOPIC, notes, {"cleanup.policy": "delete"})
    setting.view.admin.alter_configs([policy])[policy].result(TIMEOUT)
    with pytest.raises(EosError, match=r"EOS_LEDGER_UNSUITABLE.*cleanup\.policy"):
        setting.ingest(notes=notes)


def test_what_no_ingest_has_planned_is_not_read(spark: SparkSession, setting: Setting):
    """The data source below an ingest is no way around it."""
    setting.ingest()
    with pytest.raises(PySparkException, match="EOS_USE_UNSUPPORTED"):
        spark.read.format("eos-files").load().collect()
