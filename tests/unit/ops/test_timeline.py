"""What plot and top make of events, without Spark or a broker."""

from __future__ import annotations

import json
import socket
import struct
import threading
from contextlib import chdir
from itertools import repeat
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from spark_eos import cli
from spark_eos.errors import ConnectionFailed, EosError
from spark_eos.kafka.admin.open_transactions import OpenTransaction
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.owners import Cluster, Transaction
from spark_eos.ops import top as tops
from spark_eos.ops.metrics.queries import BATCH_WRITE
from spark_eos.ops.metrics.recording import EventFile, Recorder
from spark_eos.ops.plot import _title, plot
from spark_eos.ops.timeline import STEPS, EventReader, chosen, cut, queries_in, timeline_of
from spark_eos.ops.top import as_json, now_of, top
from tests.support.judges.conditions import raises

CLUSTER = Cluster(broker_client(KafkaProperties({"bootstrap.servers": "h:1"})), "ledger", "spark-eos")
OTHERS = OpenTransaction("other", 7, 0, 23, 4.0, 60.0)
#: When it began.
T = 1_760_000_000.0


class Script:
    """Events of a made-up query, as `spark_eos.ops.metrics` hands them on, one after the other; each call
    moves ``at`` on. Times are seconds."""

    def __init__(self, query: str = "q1", name: str | None = "copies") -> None:
        self.events: list[dict[str, Any]] = []
        self.at = T
        self._query, self._name, self._run = query, name, ""

    def tell(self, event: str, after: float = 0.0, **values: object) -> None:
        self.at += after
        self.events.append({"event": event, "at": self.at, **values})

    def start(self, run: str, *, process: bool = True) -> None:
        self._run = run
        if process:
            self.tell("process", 1, version="1")
        self.tell("started", 1, **self.of_run, name=self._name)

    def prepare(self, batch: int, rows: int = 100) -> dict[str, Any]:
        """The tasks take half a second."""
        self.at += 0.6
        what = {"sink": None, "generation": 1, "batch": batch, "rows": rows, "tasks": 2, "prepare_s": 0.5}
        self._prepared = self.of_run | what | {"prepare_began": self.at - 0.55, "prepare_ended": self.at - 0.05}
        self.tell("prepared", **self._prepared)
        return self._prepared

    def commit(self, batch: int, rows: int = 100, *, replayed: bool = False, transactions: int = 2) -> None:
        """The steps take 10, 20 and 30 ms, the micro-batch 750."""
        prepared = self.prepare(batch, rows)
        counts = {"bytes": 9 * rows, "dead_letters": 0, "dropped": 0, "leftovers": 0, "open": 0}
        steps = {"verify_s": 0.01, "decide_s": 0.02, "end_s": 0.03, "commit_s": 0.07}
        what = {"transactions": transactions, "replayed": replayed}
        self.tell("committed", 0.06, **prepared, **counts, **steps, **what)
        progress = {"name": self._name, "batch": batch, "rows_in": rows, "ran": True, "sources": [f"s {self._run}"]}
        self.tell("progress", 0.1, **self.of_run, **progress, began=self.at - 0.75, batch_s=0.75)

    def fail(self, batch: int, condition: str) -> None:
        self.prepare(batch)
        self.tell("failed", 0.01, **self._prepared, condition=condition, decided=True, lost=1)
        self.end(condition)

    def lag(self, stable: int, high: int, held_ms: int = 0) -> None:
        place = {"stable": stable, "high": high, "heldMs": held_ms}
        self.tell("lag", 0.1, source=f"s {self._run}", lag={"in": {"0": place}}, losses=0)

    def end(self, condition: str | None = None) -> None:
        self.tell("terminated", 0.1, **self.of_run, condition=condition)

    def write(self, path: Path) -> Path:
        path.write_text("".join(json.dumps(event) + "\n" for event in self.events))
        return path

    @property
    def of_run(self) -> dict[str, Any]:
        return {"query": self._query, "run": self._run}


def killed_and_restarted() -> Script:
    """Two micro-batches, a kill while the third commits, its replay in the next run; then a loss and its repair in a
    third run, a transaction that holds the LSO, and no end."""
    script = Script()
    script.start("one")
    script.commit(0)
    script.lag(5, 5)
    script.commit(1)
    script.prepare(2)
    script.start("two")
    script.commit(2, replayed=True, transactions=0)
    script.fail(3, "EOS_TRANSACTION_LOST")
    script.tell("restart", query="q1", condition="EOS_TRANSACTION_LOST")
    script.start("three", process=False)
    script.commit(3, replayed=True, transactions=1)
    script.lag(7, 9, held_ms=1500)
    return script


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return killed_and_restarted().write(tmp_path / "events.jsonl")


def test_how_each_run_has_ended_and_what_became_of_each_micro_batch():
    """A run without an end was killed, if another one or another process came after it; the last one runs. Each try of
    a micro-batch is one of its own: the kill, and the replay after it."""
    timeline = timeline_of(killed_and_restarted().events, "copies")
    assert [(run.id, run.how) for run in timeline.runs] == [
        ("one", "killed"),
        ("two", "EOS_TRANSACTION_LOST"),
        ("three", None),
    ]
    assert [(batch.number, batch.outcome) for batch in timeline.batches] == [
        (0, "committed"),
        (1, "committed"),
        (2, "cut off"),
        (2, "replayed"),
        (3, "EOS_TRANSACTION_LOST"),
        (3, "repaired"),
    ]


def test_a_micro_batch_counts_once_in_the_title():
    """Also one that was committed, and compared with that by a replay after a kill."""
    script = Script()
    script.start("one")
    script.commit(0)
    script.commit(1)
    script.start("two")
    script.commit(1, replayed=True, transactions=0)
    title = "copies: 2 micro-batches, 200 rows, 2 runs, 1 replayed or repaired"
    assert _title(timeline_of(script.events, "copies")) == title


def test_a_micro_batch_of_several_sinks_is_one():
    """Within foreachBatch each sink commits; the rows are those of all."""
    script = Script()
    script.start("one")
    for number in range(30):
        script.commit(number)
    of_a_sink = [event for event in script.events if event["event"] in ("prepared", "committed")]
    script.events += [event | {"sink": "other"} for event in of_a_sink]
    timeline = timeline_of(script.events, "copies")
    assert _title(timeline) == "copies: 30 micro-batches, 6,000 rows, 1 run"
    now = now_of(timeline, at=script.at)
    assert now.rows_per_s == pytest.approx(200 * now.batches_per_s)


def test_the_last_seconds_have_what_reaches_into_them():
    """A commit that took long, in a run that was killed before Spark said how long its micro-batch took."""
    script = Script()
    script.start("one")
    steps = {"verify_s": 0.0, "decide_s": 0.0, "end_s": 90.0, "replayed": False, "transactions": 1}
    script.tell("committed", 90, **script.prepare(0) | steps)
    timeline = timeline_of(script.events, "copies")
    assert [batch.number for batch in cut(timeline, script.at - 60).batches] == [0]
    assert cut(timeline, script.at + 1).batches == []


@pytest.mark.parametrize(("event", "how"), [("exit", "stopped"), ("process", "killed"), (None, None)])
def test_a_run_that_has_told_of_no_end(event, how):
    """It has ended with its process, if that ended by itself; it was killed if another process has begun instead."""
    script = Script()
    script.start("one")
    script.commit(0)
    if event is not None:
        script.tell(event, 1)
        script.tell("process", 1)
    (run,) = timeline_of(script.events, "copies").runs
    assert run.how == how


def test_steps_follow_one_another():
    """They end where the commit ended; a replay that was only compared decided nothing."""
    timeline = timeline_of(killed_and_restarted().events, "copies")
    first, replayed = timeline.batches[0], timeline.batches[3]
    prepare, verify, decide, end = (first.steps[step] for step in STEPS)
    assert prepare[1] < verify[0] < verify[1] == decide[0] < decide[1] == end[0]
    lengths = [span[1] - span[0] for span in (prepare, verify, decide, end, first.span)]
    assert lengths == pytest.approx([0.5, 0.01, 0.02, 0.03, 0.75])
    assert replayed.steps.keys() == {"prepare", "verify"}


def test_a_part_of_the_story():
    """What ended before it is left out."""
    timeline = timeline_of(killed_and_restarted().events, "copies")
    late = cut(timeline, timeline.runs[1].begin)
    assert [run.id for run in late.runs] == ["two", "three"]
    assert [batch.number for batch in late.batches] == [2, 3, 3]
    assert len(late.lags) == 1


def test_each_query_has_its_own_story():
    """By its name, or by its id; the one with most events is shown unless another one is asked for."""
    events = killed_and_restarted().events
    other = Script("q2", name=None)
    other.start("r")
    other.commit(0, rows=1)
    both = events + other.events
    assert queries_in(both) == ["q2", "copies"]
    assert chosen(both, None, "f") == "copies"
    assert [batch.rows for batch in timeline_of(both, chosen(both, "q2", "f")).batches] == [1]
    with pytest.raises(EosError, match=r"EOS_PLOT_IMPOSSIBLE.*no query 'nope'.*q2, copies"):
        chosen(both, "nope", "f")
    with pytest.raises(EosError, match="every query has no events yet"):
        chosen([], None, "f")


def test_batch_writes_are_one_story():
    """Each is a run of its own, which nobody has killed, with a micro-batch of its own."""
    script = Script(query=None)
    for run in ("one", "two"):
        script.start(run)
        script.commit(0)
    timeline = timeline_of(script.events, BATCH_WRITE)
    assert _title(timeline).startswith("df.write: 2 micro-batches, 200 rows")
    assert [(run.id, run.how) for run in timeline.runs] == [("one", "stopped"), ("two", "stopped")]
    assert [batch.outcome for batch in timeline.batches] == ["committed", "committed"]


def test_a_file_is_read_on(file: Path):
    """What was read before is not read again, half a line is waited for, and a file that became the older one goes
    on where it was."""
    reader = EventFile(file)
    before = len(reader.read())
    with file.open("a") as growing:
        growing.write('{"event": "x", "at": 1.0}\n{"event": "y",')
    assert len(reader.read()) == before + 1
    file.rename(file.with_name(file.name + ".1"))
    with file.with_name(file.name + ".1").open("a") as growing:
        growing.write(' "at": 2.0}\n')
    file.write_text('{"event": "z", "at": 3.0}\n')
    assert [event["event"] for event in reader.read()[before:]] == ["x", "y", "z"]


def test_a_watcher_keeps_the_newest_events(tmp_path: Path):
    """Of a file that is written and replaced for ever, by one process after the other, with one older file; another
    reader has every event once, also where a new file has the inode of the one that was replaced last."""
    recorder = Recorder(str(tmp_path / "events"), largest=1_000)
    reader, all_ = EventFile(tmp_path / "events", most=20), EventFile(tmp_path / "events")
    for n in range(300):
        recorder.take({"event": "x", "at": float(n)})
        if n % 10 == 9:
            assert [event["at"] for event in all_.read()] == [*range(n + 1)]
            assert [event["at"] for event in reader.read()] == [*range(n + 1)][-20:]
            assert len(reader._read) <= 4
            assert {path.name for path in tmp_path.iterdir()} <= {"events", "events.1"}
            assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3_000
        if n % 100 == 50:
            recorder.close()
            recorder = Recorder(str(tmp_path / "events"), largest=1_000)
    recorder.close()


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "prepared", "at": 1, "query": "q"}',
        '{"event": "lag", "at": 1}',
        '{"event": "lag", "at": 1, "source": "s", "lag": {"t": {"0": {"stable": 1, "high": null, "heldMs": 1}}}}',
        '{"event": "lag", "at": 1, "source": "s", "lag": {"t": [1]}}',
        '{"event": "started", "at": NaN, "query": "q", "run": "r"}',
        '{"event": "started", "at": 1, "query": ["q"], "run": "r"}',
        '{"event": "progress", "at": 1, "query": "q", "run": "r", "batch": 1, "ran": true, "began": 1, "batch_s": 1}',
        '{"event": "committed", "at": true, "rows": "7"}',
        '{"event": "terminated", "at": 1, "query": "q", "run": "r"}',
    ],
)
def test_lines_of_another_program_are_skipped(file: Path, line: str):
    """Or of another version. What is whole is shown, and all that is recorded is."""
    whole = EventReader(str(file)).read()
    assert whole == killed_and_restarted().events
    text = file.read_text()
    file.write_text(f"{line}\n{text}{line}\n")
    assert EventReader(str(file)).read() == whole
    assert "copies" in top(str(file), None, None).text
    file.write_text(f"{line}\n")
    with raises("EOS_PLOT_IMPOSSIBLE.empty"):
        top(str(file), None, None)


def test_an_address_that_is_no_http(tmp_path: Path):
    """Such as that of ssh: it answers with something else, or with less than it says."""
    for answer in (b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"):
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()

            def serve(server: socket.socket = server, answer: bytes = answer) -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1_000)
                    connection.sendall(answer)

            thread = threading.Thread(target=serve)
            thread.start()
            with pytest.raises(EosError) as caught:
                EventReader(f"http://127.0.0.1:{server.getsockname()[1]}").read()
            thread.join()
        assert caught.value.entry == "EOS_PLOT_IMPOSSIBLE.unreadable"


@pytest.mark.parametrize(
    "source",
    ["/nowhere/events.jsonl", "/", "http://127.0.0.1:1", "http://[", "http://localhost:94 00"],
)
def test_a_source_that_cannot_be_read(source):
    """It is named, with what to name instead."""
    with raises("EOS_PLOT_IMPOSSIBLE", "http://localhost:9400", source):
        EventReader(source).read()


def test_numbers_of_the_last_seconds():
    """Rates are those of 30 s, or since the query began; rows that were written before do not count."""
    script = Script()
    script.start("one")
    for number in range(60):
        script.commit(number)
    now = now_of(timeline_of(script.events, "copies"), at=script.at)
    told = as_json(now)
    assert told["rows_per_s"] == pytest.approx(100 / 0.76, rel=0.1)
    assert told["batches"][-1]["steps"] == pytest.approx(
        {"prepare": 0.5, "verify": 0.01, "decide": 0.02, "EndTxn": 0.03, "rest": 0.19}
    )
    assert now_of(now.timeline, at=script.at + 60).rows_per_s == 0


def test_topics_that_are_no_longer_read_have_no_lag_now():
    """What a source told last is all that it reads; of another source it says nothing."""
    script = Script()
    script.start("one")
    script.commit(0)
    place = {"0": {"stable": 5, "high": 5, "heldMs": 0}}
    script.tell("lag", 0.1, source="s one", lag={"gone": place, "in": place}, losses=0)
    script.tell("progress", **script.of_run, name="copies", batch=0, rows_in=1, ran=False, sources=["s two"])
    script.tell("lag", 0.1, source="s two", lag={"other": place}, losses=0)
    script.lag(7, 9)
    now = now_of(timeline_of(script.events, "copies"), at=script.at)
    assert {lag.topic: lag.stable for lag in now.lags} == {"in": 7, "other": 5}


def test_top_says_it_all_once(file, capsys):
    """State, lag, how long the LSO stands still, each micro-batch and what became of it."""
    assert cli.main(["top", str(file), "--once"]) == 0
    said = capsys.readouterr().out
    for part in ("copies", "running for", "run 3", "1.5 s", "EOS_TRANSACTION_LOST", "repaired", "cut off"):
        assert part in said
    assert cli.main(["top", str(file), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["lag"] == [{"topic": "in", "stable": 7, "high": 9, "stalled_s": 1.5}]
    assert told["blocking"] is None
    assert [batch["outcome"] for batch in told["batches"]][-1] == "repaired"


OWN = Transaction("other", "q9", 7, 0, "Ongoing", 4.0, 60.0, False, 1, "r", 12, True)
SILENT = ConnectionFailed("EOS_KAFKA_UNREACHABLE", "No answer from h:1.", hint="Start it.")


@pytest.mark.parametrize(
    ("ours", "oldest", "query", "batch", "says"),
    [
        ([], OTHERS, None, None, "transactional id other"),
        ([OWN], OTHERS, "q9", 12, "query q9, micro-batch 12, decided"),
        (SILENT, SILENT, None, None, "EOS_KAFKA_UNREACHABLE"),
    ],
    ids=["somebody else's", "ours", "nobody answers"],
)
def test_who_holds_the_lso(file, monkeypatch: pytest.MonkeyPatch, ours, oldest, query, batch, says):
    """Somebody else's transaction by its id; one of ours by its query and micro-batch; where nobody answers, that."""
    monkeypatch.setattr(tops, "find", MagicMock(side_effect=repeat(ours)))
    monkeypatch.setattr(tops, "oldest_open_transaction", MagicMock(side_effect=repeat(oldest)))
    answer = top(str(file), None, CLUSTER)
    (told,) = answer.data["blocking"]
    assert (told["topic"], told["partition"], told["query"], told["batch"]) == ("in", 0, query, batch)
    assert told["text"] and says in " ".join(answer.text.split())


@pytest.mark.parametrize("lines", [0, 1])
def test_a_picture_of_a_query(file, tmp_path, capsys, lines):
    """A PNG of the size that pages have room for; of a query that has done nothing yet, too."""
    if not lines:
        script = Script()
        script.start("one")
        script.prepare(0)
        script.write(file)
    picture = tmp_path / "query.png"
    assert cli.main(["plot", str(file), "--to", str(picture), "--last", "1000", "--format", "json"]) == 0
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (1560, 975)
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(picture)
    if lines:
        assert told["runs"] == ["killed", "EOS_TRANSACTION_LOST", "running"]


def test_what_is_in_the_picture(file, tmp_path):
    """The text of an SVG: the steps, the numbers of micro-batches, the kill, the error and the runs after them."""
    picture = tmp_path / "query.svg"
    plot(str(file), str(picture))
    text = picture.read_text()
    words = ("prepare", "decide", "EndTxn", "killed", "EOS_TRANSACTION_LOST", "run 2", "run 3", "held by", "repaired")
    assert [word for word in words if f"<!-- {word}" not in text] == []


@pytest.mark.parametrize("to", ["/nowhere/query.png", "query.nope"])
def test_a_picture_that_cannot_be_written(file, to, tmp_path):
    """By name."""
    with chdir(tmp_path), pytest.raises(EosError, match=r"EOS_PLOT_IMPOSSIBLE.*cannot be written"):
        plot(str(file), to)


def test_a_picture_of_nothing(file, tmp_path):
    """Is none: somebody would look for the query in it."""
    script = Script()
    script.start("one")
    script.commit(0)
    script.tell("exit", 100)
    with pytest.raises(EosError, match=r"EOS_PLOT_IMPOSSIBLE.*larger --last"):
        plot(str(script.write(file)), str(tmp_path / "query.png"), last_s=50)
    assert not (tmp_path / "query.png").exists()


def test_a_picture_needs_its_extra(file, tmp_path, not_installed):
    """Which the error names."""
    not_installed("matplotlib.figure")
    with pytest.raises(EosError, match=r"EOS_NOT_INSTALLED.*\[plot\]"):
        plot(str(file), str(tmp_path / "query.png"))
