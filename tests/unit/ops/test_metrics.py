"""Events, their way to who counts them, and what the numbers are, without Spark or a broker."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql.streaming.listener import QueryStartedEvent, QueryTerminatedEvent

from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.errors import UnsupportedError
from spark_eos.ops.metrics import endpoint as module
from spark_eos.ops.metrics import start
from spark_eos.ops.metrics.endpoint import Endpoint
from spark_eos.ops.metrics.exporter import Exporter
from spark_eos.ops.metrics.hub import Hub, Inbox, parsed
from spark_eos.ops.metrics.recording import EventFile, Recent, Recorder
from tests.support.waiting import TIMEOUT, wait_for

ID = uuid.uuid4()
COMMITTED = {
    **{"event": "committed", "at": 100.0, "query": "q", "sink": None, "run": "r", "generation": 1, "batch": 0},
    **{"rows": 10, "bytes": 90, "dead_letters": 1, "dropped": 3, "tasks": 2, "transactions": 2, "replayed": False},
    **{"leftovers": 0, "open": 0, "prepare_s": 0.2, "verify_s": 0.01, "decide_s": 0.01, "end_s": 0.01, "commit_s": 0.1},
}
LAG = {"t": {"0": {"stable": 3, "high": 5, "heldMs": 1500}, "1": {"stable": 4, "high": 4, "heldMs": 0}}}


class Counted:
    """What the exporter makes of events: ``counted(**event)``, then ``counted["rows_total", "query", "q"]``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._exporter = Exporter(self.registry)

    def __call__(self, **event: object) -> None:
        self._exporter.take({"at": 100.0, "query": "q", "sink": None, **event})

    def __getitem__(self, key: tuple[str, ...]) -> float | None:
        name, *labels = key
        wanted = dict(zip(labels[::2], labels[1::2], strict=True))
        found = [
            sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == f"spark_eos_{name}" and wanted.items() <= sample.labels.items()
        ]
        assert len(found) < 2
        return found[0] if found else None


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def recent() -> Recent:
    return Recent()


@pytest.fixture
def inbox(recent: Recent) -> Iterator[Inbox]:
    inbox = Inbox(Hub([recent]))
    yield inbox
    inbox.close()


def names(recent: Recent) -> list[str]:
    return [event["event"] for event in parsed(recent.as_lines())]


def test_events_of_another_process_arrive(inbox, recent):
    """With their values, and when they were sent; from a process that ends at once, too."""
    if os.fork() == 0:
        try:
            inbox.events.tell("committed", rows=3)
        finally:
            os._exit(0)
    os.wait()
    wait_for(lambda: names(recent) == ["committed"], "the event")
    (event,) = parsed(recent.as_lines())
    assert event["rows"] == 3
    assert event["at"] > 1e9


def test_nobody_else_can_tell(inbox):
    """The socket is in a folder that only its owner can enter, and that is gone with it."""
    folder = Path(inbox.events.path).parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    inbox.close()
    assert not folder.exists()


@pytest.mark.parametrize("path", ["/nowhere/events", "/" + 200 * "x", None])
def test_nothing_happens_where_nobody_listens(path):
    """An event is lost; whoever tells of it does not notice."""
    Events(path).tell("committed", rows=3, what=object())


def test_a_listener_that_hangs_holds_nobody_up(tmp_path):
    """It never takes a connection: events are lost, and telling of them takes no time, or little for a large one."""
    with contextlib.chdir(tmp_path), socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind("events")
        hanging.listen(1)
        Events("events").tell("lag", lag="x" * 1_000_000)
        for _ in range(50):  # any wait would be for ever
            Events("events").tell("committed")


def test_an_event_that_is_larger_than_the_buffer_of_a_socket_arrives(inbox, recent):
    """Such as the lag of ten thousand partitions."""
    inbox.events.tell("lag", lag="x" * 1_000_000)
    wait_for(lambda: names(recent) == ["lag"], "the event")


def test_what_is_no_event_is_left_out(inbox, recent):
    """Half a line, other JSON, no time, too deep: the next event is taken all the same."""
    for line in (b'{"event": "x", "at"', b"[1]\n7\n", b'{"event": "x"}\n', b"\xff\n", b"[" * 200_000 + b"\n"):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(inbox.events.path)
            connection.sendall(line)
    inbox.events.tell("good")
    wait_for(lambda: "good" in names(recent), "the event")
    assert names(recent) == ["good"]


def test_a_consumer_that_fails_keeps_nothing_from_the_others(recent, caplog):
    """It is said once, however often it fails."""

    class Failing:
        def take(self, event: object) -> None:
            raise ZeroDivisionError("by zero")

    hub = Hub([Failing(), recent])
    for _ in range(3):
        hub.take({"event": "x", "at": 1.0})
    assert names(recent) == 3 * ["x"]
    said = "metrics: the event 'x' was not recorded: ZeroDivisionError: by zero"
    assert [record.getMessage() for record in caplog.records].count(said) == 1


def test_the_latest_events_take_no_more_than_so_many_bytes():
    """The oldest give way to the next, and one that is larger than all of it is left out."""
    recent = Recent(largest=100)
    for n in range(9):
        recent.take({"event": "x", "at": n})
    assert [event["at"] for event in parsed(recent.as_lines())] == [5, 6, 7, 8]
    recent.take({"event": "x" * 100, "at": 9})
    recent.take({"event": "x", "at": 10})
    assert [event["at"] for event in parsed(recent.as_lines())] == [10]


def test_a_rename_that_fails_ends_no_recording(tmp_path):
    """Nor does a file that cannot be opened: later events are there. A folder is in the way of both."""
    path, older = tmp_path / "events.jsonl", tmp_path / "events.jsonl.1"
    recorder = Recorder(str(path), largest=10)
    recorder.take({"event": "x", "at": 1.0})
    for folder in (older, path):
        folder.unlink(missing_ok=True)
        folder.mkdir()
        for _ in range(2):
            with pytest.raises(IsADirectoryError):
                recorder.take({"event": "x", "at": 2.0})
        folder.rmdir()
    recorder.take({"event": "x", "at": 3.0})
    assert EventFile(path).read()[-1]["at"] == 3.0
    recorder.close()


def test_a_micro_batch_counts_once(counted):
    """Its replay is counted as that, and neither its rows nor what it leaves out again; those of a failed one are."""
    counted(**COMMITTED)
    counted(**COMMITTED | {"replayed": True, "transactions": 0, "dead_letters": 0})  # its tasks reject the same
    counted(event="failed", batch=1, condition="EOS_TRANSACTION_LOST", lost=1)
    counted(event="aborted", batch=1, transactions=0, open=0)  # what was decided is never aborted
    later = {"batch": 1, "replayed": True, "transactions": 1, "dead_letters": 0, "dropped": 4}
    counted(**COMMITTED | later)
    totals = {
        "batches": 2,
        "rows": 20,
        "replays": 2,
        "repairs": 1,
        "aborts": 1,
        "dead_letters": 1,
        "dropped_records": 7,
    }
    assert {name: counted[f"{name}_total", "query", "q"] for name in totals} == totals
    outcomes = {"lost": 1, "committed": 3, "aborted": 0}
    assert {name: counted["transactions_total", "outcome", name] for name in outcomes} == outcomes


def test_what_is_given_up_is_aborted(counted):
    """With the transactions of its tasks, where nothing was decided; leftovers of other attempts count, too."""
    counted(event="aborted", batch=1, transactions=2, open=1)
    assert counted["transactions_total", "outcome", "aborted"] == 2
    assert counted["open_transactions", "query", "q"] == 1
    counted(**COMMITTED | {"leftovers": 3, "open": 1})
    assert counted["transactions_total", "outcome", "aborted"] == 4


def test_no_label_grows_with_batch_writes_or_runs(counted):
    """Each batch write has an id of its own, and each start of a query a run: there is one series for all."""
    for n in range(5):
        counted(**COMMITTED | {"query": None, "run": f"run {n}", "batch": 0})
        counted(**COMMITTED | {"query": "q", "run": f"run {n}", "batch": n})
    assert counted["rows_total", "query", "df.write"] == 50
    assert counted["rows_total", "query", "q"] == 50


def test_a_query_is_called_by_its_name(counted):
    """Where it has one; its sinks within foreachBatch have theirs."""
    counted(event="started", run="r", name="copies")
    counted(**COMMITTED | {"sink": "one"})
    counted(**COMMITTED | {"sink": "two"})
    assert counted["rows_total", "query", "copies", "sink", "two"] == 10
    assert counted["query_running", "query", "copies"] == 1


def test_the_lag_of_a_source_belongs_to_its_query(counted):
    """Before the first progress if only one query runs, then by what the progress says; it ends with the query."""
    counted(event="started", run="r", name="copies")
    counted(event="lag", source="s", lag=LAG, losses=0)
    assert counted["source_lso_lag_offsets", "query", "copies", "topic", "t"] == 7
    assert counted["source_high_watermark_lag_offsets", "topic", "t"] == 9
    assert counted["source_lso_stalled_seconds", "topic", "t"] == 1.5
    assert counted["source_held_partitions", "topic", "t"] == 1
    counted(event="started", query="other", run="r2", name=None)
    counted(event="progress", run="r", name="copies", batch=0, rows_in=5, batch_s=1.0, ran=True, sources=["s"])
    counted(event="lag", source="s", lag=LAG, losses=2)
    counted(event="lag", source="s", lag=LAG, losses=2)
    assert counted["source_data_losses_total", "query", "copies"] == 2
    assert counted["input_rows_total", "query", "copies"] == 5
    counted(event="terminated", run="r", condition=None)
    assert counted["source_lso_lag_offsets", "topic", "t"] is None
    assert counted["query_running", "query", "copies"] == 0
    counted(event="lag", source="s", lag=LAG, losses=3)  # it was on its way
    assert counted["source_lso_lag_offsets", "topic", "t"] is None
    assert counted["source_data_losses_total", "query", "copies"] == 3


def test_topics_that_are_no_longer_read_have_no_lag(counted):
    """They were deleted, or have left the selection; another source of the query may still read them."""
    counted(event="started", run="r", name="copies")
    counted(event="progress", run="r", name="copies", batch=0, rows_in=5, batch_s=1.0, ran=True, sources=["s", "s2"])
    places = LAG["t"]
    counted(event="lag", source="s", lag={"t": places, "u": places, "v": places}, losses=0)
    counted(event="lag", source="s2", lag={"v": places}, losses=0)
    counted(event="lag", source="s", lag={"t": places}, losses=0)
    for name in ("source_lso_lag_offsets", "source_high_watermark_lag_offsets", "source_held_partitions"):
        found = [counted[name, "query", "copies", "topic", topic] is not None for topic in "tuv"]
        assert found == [True, False, True]
    assert counted["source_lso_stalled_seconds", "query", "copies", "topic", "u"] is None
    counted(event="lag", source="s", lag={}, losses=0)
    counted(event="terminated", run="r", condition=None)
    assert counted["source_lso_lag_offsets", "query", "copies"] is None


def test_a_query_that_hangs_in_its_first_micro_batch_is_seen(counted):
    """It has told nothing but its lag: it runs, and has committed nothing since it began."""
    last = "last_commit_timestamp_seconds"
    counted(event="started", run="r", name="copies")
    counted(event="lag", source="s", lag=LAG, losses=0)
    assert (counted["query_running", "query", "copies"], counted[last, "query", "copies"]) == (1, 100)
    counted(event="lag", at=200.0, source="s", lag=LAG, losses=0)
    counted(event="terminated", at=210.0, run="r", condition="EOS_TOPIC_MISSING")
    counted(event="started", at=220.0, run="r2", name="copies")
    counted(event="lag", at=230.0, source="s", lag=LAG, losses=0)
    assert (counted["query_running", "query", "copies"], counted[last, "query", "copies"]) == (1, 100)
    counted(**COMMITTED | {"at": 300.0, "sink": "one"})
    assert counted[last, "query", "copies"] == 300  # and no other series


def test_counters_begin_at_zero_with_the_query(counted):
    """So that their first event is a rise; sinks within foreachBatch then have their own."""
    counted(event="started", run="r", name="copies")
    counted(event="lag", source="s", lag=LAG, losses=0)
    names = ("rows_total", "dead_letters_total", "dropped_records_total", "aborts_total")
    for name in (*names, "input_rows_total", "source_data_losses_total"):
        assert counted[name, "query", "copies"] == 0, name
    assert counted["transactions_total", "query", "copies", "outcome", "lost"] == 0
    counted(**COMMITTED | {"sink": "one"})
    for name in names:
        assert counted[name, "query", "copies", "sink", ""] is None, name
    assert counted["transactions_total", "query", "copies", "sink", "", "outcome", "lost"] is None


def test_a_query_with_another_sink_commits_by_what_spark_says(counted):
    """A Delta table through Spark, for example, tells no commit of its own."""
    done = {"event": "progress", "run": "r", "name": "copies", "rows_in": 5, "batch_s": 1.0, "sources": ["s"]}
    last = "last_commit_timestamp_seconds"
    counted(event="started", run="r", name="copies")
    counted(**done, batch=0, ran=True, at=150.0)
    counted(**done, batch=1, ran=True, at=200.0)
    counted(**done, batch=1, ran=False, at=250.0)
    assert counted[last, "query", "copies", "sink", ""] == 200
    counted(**COMMITTED | {"at": 300.0})
    counted(**done, batch=2, ran=True, at=301.0)
    assert counted[last, "query", "copies", "sink", ""] == 300


def test_queries_of_others_are_not_counted(counted):
    """Spark's listener tells of all queries of the session; those without our source and sink have no series."""
    counted(event="started", run="r", name="theirs")
    counted(event="progress", run="r", name="theirs", batch=0, rows_in=5, batch_s=1.0, ran=True, sources=[])
    counted(event="terminated", run="r", condition="OTHER")
    for name in ("query_running", "input_rows_total", "failures_total", "last_commit_timestamp_seconds"):
        assert counted[name, "query", "theirs"] is None


@pytest.fixture
def endpoint(recent, counted, monkeypatch) -> Iterator[Callable[[float], Endpoint]]:
    """``endpoint(request_s)``: one whose requests have so many seconds."""
    with contextlib.ExitStack() as stack:

        def endpoint(request_s: float) -> Endpoint:
            monkeypatch.setattr(module, "_REQUEST_S", request_s)
            return stack.enter_context(contextlib.closing(Endpoint("127.0.0.1", 0, counted.registry, recent)))

        yield endpoint


def test_the_endpoint_serves_metrics_and_events(recent, counted, endpoint):
    """And tells where they are, to who asks for anything else."""
    recent.take({"event": "x", "at": 1.0})
    counted(**COMMITTED)
    address = f"http://127.0.0.1:{endpoint(TIMEOUT).port}"
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        assert b'spark_eos_rows_total{query="q",sink=""} 10.0' in answer.read()
    with urllib.request.urlopen(f"{address}/events") as answer:
        assert json.loads(answer.read()) == {"event": "x", "at": 1.0}
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        urllib.request.urlopen(f"{address}/")
    assert b"/metrics" in caught.value.read()


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side ends the connection; what it sends before is passed over."""
    connection.settimeout(TIMEOUT)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_a_request_that_drips_has_an_end(endpoint):
    """Each byte comes in time, and the request never; one without an end of its head is too large."""
    address = ("127.0.0.1", endpoint(0.5).port)
    for piece, pause_s in ((b"G", 0.05), (b"x" * 1000, 0.0)):
        with socket.create_connection(address) as connection:
            over = threading.Event()

            def drip(connection=connection, piece=piece, pause_s=pause_s, over=over) -> None:
                with contextlib.suppress(OSError):
                    while not over.wait(pause_s):
                        connection.sendall(piece)

            thread = threading.Thread(target=drip)
            thread.start()
            assert is_closed(connection)
            over.set()
            thread.join()


def test_many_connections_hold_no_more_than_a_few_threads(endpoint):
    """The oldest go, so that somebody who asks something is answered at once."""
    address = ("127.0.0.1", endpoint(2 * TIMEOUT).port)
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        # No more at a time than wait to be accepted: others would come a second later.
        held = [stack.enter_context(socket.create_connection(address)) for _ in range(12)]
        with urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/metrics", timeout=TIMEOUT) as answer:
            assert answer.status == 200
        assert all(is_closed(connection) for connection in held[:5])
        wait_for(lambda: threading.active_count() - before <= 8, "the end of the others' threads")


class FakeSession:
    """It runs no query; its application is called copier."""

    def __init__(self) -> None:
        self.streams = self.dataSource = self
        self.registered: list[type] = []
        self.listeners: list[object] = []
        self.addListener, self.removeListener = self.listeners.append, self.listeners.remove
        self.conf = {"spark.app.name": "copier"}

    def register(self, source: type) -> None:
        self.registered.append(source)


@pytest.fixture
def session() -> FakeSession:
    return FakeSession()


def test_metrics_are_on_until_they_are_closed(session):
    """The session's data source knows where to tell, and forgets it; its listener goes."""
    metrics = start(session, 0, None, None)
    socket.create_connection(("127.0.0.1", metrics.port)).close()
    with pytest.raises(OSError, match="refused"):  # at another address of this machine, by default
        socket.create_connection(("127.0.0.2", metrics.port))
    assert session.registered[-1]._events != NOWHERE
    assert len(session.listeners) == 1
    metrics.close()
    assert session.registered[-1]._events == NOWHERE
    assert session.listeners == []
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics")


@pytest.mark.parametrize("what", ["port", "file", "socket"])
def test_what_is_in_the_way_of_metrics_is_logged(session, caplog, tmp_path, monkeypatch: pytest.MonkeyPatch, what):
    """A port that somebody has, a file that cannot be, no Unix sockets: the query is to run all the same."""
    if what == "socket":
        monkeypatch.delattr(socket, "AF_UNIX")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1] if what == "port" else 0
        metrics = start(session, port, "127.0.0.1", str(tmp_path if what == "file" else tmp_path / "events"))
        metrics.close()
    assert (metrics.port is None) == (what == "port")
    assert any(isinstance(one, Recent) for one in metrics._hub._consumers) == (what != "port")  # who would ask?
    said = {"port": f"port {port}", "file": "no events are kept", "socket": "commits are not counted"}[what]
    assert [said in record.getMessage() for record in caplog.records] == [True]


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("a..b", 0), ("x" * 70, 0)])
def test_no_query_fails_for_an_endpoint_that_cannot_be(session, host, port, caplog):
    """A problem of metrics is logged."""
    metrics = start(session, port, host, None)
    metrics.close()
    assert metrics.port is None and "no endpoint for metrics" in caplog.text


def test_a_process_that_ends_waits_for_what_spark_says_of_its_end(session, tmp_path, monkeypatch):
    """So that nobody takes it for killed; and Spark does not call a listener that is gone."""
    metrics = start(session, None, None, str(tmp_path / "events"))
    monkeypatch.setattr("spark_eos.ops.metrics.session._LAST_EVENT_S", TIMEOUT)
    (listener,) = session.listeners
    listener.onQueryStarted(QueryStartedEvent(ID, ID, "q", "2026-01-01T00:00:00Z", set()))
    threading.Timer(0.1, listener.onQueryTerminated, [QueryTerminatedEvent(ID, ID, None, None)]).start()
    metrics._leave()
    events = [event["event"] for event in EventFile(tmp_path / "events").read()]
    assert events == ["process", "started", "terminated", "exit"]
    assert session.listeners == []


def test_an_endpoint_needs_its_extra(session, not_installed):
    """It is named before anything is started. A file of events needs nothing."""
    not_installed("prometheus_client")
    with pytest.raises(UnsupportedError, match=r"EOS_NOT_INSTALLED.*\[metrics\]"):
        start(session, 0, None, None)
    assert session.registered == session.listeners == []
    start(session, None, None, None).close()
