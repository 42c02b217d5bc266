"""Input, output and the query between them; what it meets, how it goes on, what every reader must see at the end."""

from __future__ import annotations

import math
import os
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_eos import reason
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView, Row, doubled, write
from tests.support.judges.processor import Load
from tests.support.judges.recorder import Recorded, judged
from tests.support.kills import query
from tests.support.queries.data_paths import WAYS
from tests.support.queries.mirrors import beside, misplaced_by
from tests.support.spark.session_faults import Fault, armed
from tests.support.waiting import PROGRAM_S, TIMEOUT, wait_for

PARTITIONS = 4
ROWS = 30  # in each partition
FEW = 20  # likewise, in `fed_query`
ROWS_PER_BATCH = 50
#: So many times as many rows, and in a micro-batch: a mirror's task takes 512 offsets, whatever their partitions.
MORE_OF_MIRRORS = 50

Values = dict[int, list[str]]


@dataclass(frozen=True)
class Course:
    """How a query met a fault. ``sees`` is the condition that it stopped with, or that it waited; ``seconds`` passed
    from the fault's end, or from the start after a stop, to the next committed micro-batch; ``rewritten`` are rows that
    lie in the log more than once; ``used_s`` is Spark's processor time from the fault to the end of the query."""

    sees: str
    seconds: float
    rewritten: int
    used_s: float = math.nan

    def __str__(self) -> str:
        rows = f"{self.rewritten} rows rewritten"
        return f"{self.sees} | {self.seconds:.1f} s | {rows} | {self.used_s:.1f} s of processor time"


def in_batch_2(point: str) -> str:
    """The fault that holds the query at a point of its tasks or of the commit in micro-batch 2. Micro-batch 0 is empty,
    and has no transaction; 1 has a task for each partition."""
    if point.startswith("prepare."):
        return f"{point}=hold@{PARTITIONS + 3}"
    return f"{point}=hold@{2 if point == 'commit.between' else 3}"


def topics_of(cluster: DevCluster) -> Callable[..., str]:
    """``topic(partitions)`` makes a new one."""

    def topic(partitions: int = 1, **config: object) -> str:
        name = f"topic-{uuid.uuid4().hex[:8]}"
        cluster.create_topic(name, partitions, **config)
        return name

    return topic


@contextmanager
def fed_query(
    view: KafkaView, topic: Callable[..., str], folder: Path, way: str, whole_parts: bool = True
) -> Iterator[query.Spec]:
    """A query of two micro-batches, whose input is there. What readers of the output see meanwhile is judged;
    ``whole_parts``: see `Recorded`."""
    source, out = topic(PARTITIONS), topic(PARTITIONS)
    rows = [(p, f"{p}.{i}") for p in range(PARTITIONS) for i in range(FEW)]
    write(view.bootstrap_servers, source, rows, commit=True)
    fields = WAYS[way]
    made = query.Spec(view.bootstrap_servers, source, out, str(folder / "checkpoint"), f"group-{out}", 40, **fields)
    with judged(view, Recorded(made, whole_parts=whole_parts)):
        yield made


def each_is_there_once(view: KafkaView, spec: query.Spec) -> None:
    """Every row of `fed_query`."""
    expected = Counter(spec.expected(f"{p}.{i}") for p in range(PARTITIONS) for i in range(FEW))
    assert Counter(view.values(spec.output)) == expected


def nothing_is_open(view: KafkaView, spec: query.Spec, query_id: str) -> None:
    """What nobody waits for any more is aborted, and keeps no reader back."""
    assert view.open_transactions(query_id) == set()
    assert view.held(spec.output) == {}


class Scene:
    """Input, output and the query between them. ``way`` is one of `WAYS`, ``spec`` are fields of its spec besides.

    A mirror has so many more rows that each partition has a task of its own, as it has otherwise.
    """

    def __init__(
        self,
        view: KafkaView,
        topic: Callable[..., str],
        folder: Path,
        shuffle: int | None = None,
        rows_per_batch: int = ROWS_PER_BATCH,
        way: str = "rows",
        **spec: Any,
    ) -> None:
        self.view = view
        fields = WAYS[way] | spec
        mirrors = bool(fields.get("mirrors"))
        self.more = more = MORE_OF_MIRRORS if mirrors else 1
        self.input = topic(PARTITIONS)
        self.output = beside(view, self.input) if mirrors else topic(PARTITIONS)
        self.values: Values = {p: [self.value(p, i) for i in range(ROWS * more)] for p in range(PARTITIONS)}
        self.folder = folder
        self.group = f"group-of-{self.output}"
        self._noted: set[Row] = set()
        servers = view.bootstrap_servers
        rows = [(p, value) for p, values in self.values.items() for value in values]
        half = len(rows) // 2
        write(servers, self.input, rows[:half], commit=True)
        write(servers, self.input, [(p, "aborted") for p in range(PARTITIONS)], commit=False)
        write(servers, self.input, rows[half:], commit=True)
        made = {"bootstrap_servers": servers, "checkpoint": str(folder / "checkpoint"), "shuffle": shuffle}
        self.spec = query.Spec(
            input=self.input,
            output=self.output,
            also=None if fields.get("copies") else topic(PARTITIONS),
            group=self.group,
            rows_per_batch=rows_per_batch * more,
            **made | fields,
        )

    def value(self, partition: int, number: int) -> str:
        """Of a row of the input."""
        return f"{partition}.{number:03d}"

    def recorded(self) -> AbstractContextManager[object]:
        """Everything that readers see while the block runs is recorded, and judged at its end."""
        return judged(self.view, Recorded(self.spec))

    def feed(self) -> None:
        """One more row for each partition."""
        for p, values in self.values.items():
            values.append(f"{p}.{len(values):03d}")
        more = [(p, values[-1]) for p, values in self.values.items()]
        write(self.view.bootstrap_servers, self.input, more, commit=True)

    def leave_decided(self, spark: SparkSession) -> None:
        """Let a run of the query die between its first decision and the end of the transactions decided on."""
        with armed(spark, "commit.decided=fail@2", self.folder / "first"):
            first = query.start(spark, self.spec)
            with pytest.raises(StreamingQueryException, match="FaultInjected"):
                first.awaitTermination(TIMEOUT)
        assert len(self.view.open_transactions(first.id)) == PARTITIONS

    def drain(self, spark: SparkSession) -> str:
        """Run the query without faults until its input is drained; its id."""
        sink = {key: value for key, value in self.spec.sink.items() if key != "transaction.timeout.ms"}
        restarted = query.start(spark, replace(self.spec, sink=sink))  # a short one is part of the fault
        try:
            if self.spec.available_now:
                assert restarted.awaitTermination(TIMEOUT), "the restarted query does not end"
            else:
                self.wait_for_the_end_of_the_input(restarted)
                restarted.processAllAvailable()
        finally:
            restarted.stop()
        return restarted.id

    def go_on_from_the_group(self, spark: SparkSession) -> str:
        """As `drain`, with a new checkpoint, from the offsets of the group on."""
        self.spec = replace(self.spec, checkpoint=f"{self.spec.checkpoint}-new", from_group=True)
        return self.drain(spark)

    def wait_for_the_end_of_the_input(self, running: StreamingQuery) -> None:
        """Until the offsets of all that is there are published; the query's error when it stops instead."""

        def there() -> bool:
            assert running.exception() is None, str(running.exception())
            return self.view.group(self.group, self.input) == self.view.ends(self.input)  # a marker may be on its way

        wait_for(there, "the end of the input")

    def strike(
        self,
        spark: SparkSession,
        faults: str,
        happens: Callable[[StreamingQuery], None],
        *,
        lasts: float = 0.0,
        passes: Callable[[], None] = lambda: None,
        before_restart: Callable[[], None] = lambda: None,
        heals: Callable[[], None] = lambda: None,
        within: float = PROGRAM_S,
    ) -> Course:
        """Run the query up to the first of these faults, which holds it; let ``happens`` happen and the query go on.

        So many seconds later it ``passes``. When the query has ended, or stopped with an error of the library and gone
        on by a restart, ``heals`` puts right what is still wrong; ``before_restart`` does so where nothing could go on.
        The query has to end ``within`` so many seconds, and must not spin.
        """
        with self.recorded():
            course = self._struck(spark, faults, happens, lasts, passes, before_restart, heals, within)
        tell(course)
        return course

    def _struck(
        self,
        spark: SparkSession,
        faults: str,
        happens: Callable[[StreamingQuery], None],
        lasts: float,
        passes: Callable[[], None],
        before_restart: Callable[[], None],
        heals: Callable[[], None],
        within: float,
    ) -> Course:
        with armed(spark, self._counted(faults), self.folder / "faults") as fault:
            started = query.start(spark, self.spec)
            try:
                self._wait_for(fault, started)
                self.note()
                happens(started)
                ending = _After(lasts, passes)
                released, load = time.time(), Load()
                fault.release()
                wait_for(lambda: load.look() and not started.isActive, "the end of the query", within)
                used_s = load.check()
                ending.wait()
            finally:
                fault.marker.unlink(missing_ok=True)  # what is held would not let the query be stopped
                started.stop()
        stopped_by = condition(started)
        if stopped_by:
            before_restart()
            released = time.time()
            self.drain(spark)
        heals()
        self.check(started.id)
        seconds = max(0.0, self.went_on(released) - (0.0 if stopped_by else lasts))
        return Course(stopped_by or "waits", seconds, self.rewritten(), used_s)

    def _counted(self, faults: str) -> str:
        """A task of a mirror comes to `prepare.wrote` twice: with its rows, and with their places."""
        if not self.spec.mirrors:
            return faults
        return re.sub(r"(?<=prepare\.wrote=hold@)\d+", lambda n: str(2 * int(n[0]) - 1), faults)

    def _wait_for(self, fault: Fault, started: StreamingQuery) -> None:
        wait_for(lambda: fault.marker.exists() or not started.isActive, f"the fault at {fault.marker.name}")
        assert started.isActive, f"the query ended before it came to {fault.marker.name}: {started.exception()}"

    def wait_for_the_time_out(self, query_id: str) -> None:
        """Until the broker has given up every open transaction of the query."""
        wait_for(lambda: not self.view.open_transactions(query_id), "the time-out")

    def note(self) -> None:
        """Remember what read_committed consumers see now: at the end it must be there still."""
        self._noted |= set(self.view.rows(self.output))

    def went_on(self, since: float) -> float:
        """Seconds from a moment to the next micro-batch that Spark noted as committed."""
        commits = [file.stat().st_mtime for file in Path(self.spec.checkpoint, "commits").glob("[0-9]*")]
        return min(at for at in commits if at > since) - since

    def rewritten(self) -> int:
        """Rows in the log beyond those that are wanted: copies that were aborted."""
        return len(self.view.rows(self.output, committed=False)) - sum(map(len, self.values.values()))

    def check(self, query_id: str) -> None:
        """Every row once, in the order of its partition; offsets published; nothing open; readers are not held.

        Nothing that read_committed consumers have ever seen may vanish. Other consumers see the same rows, and those
        that were aborted besides. A mirror's offset map says where each row is.
        """
        wait_for(lambda: self.view.held(self.output) == {}, "the markers")
        rows = self.view.rows(self.output)
        seen = [row.value.decode() for row in rows]
        wanted = {self.spec.expected(value) for values in self.values.values() for value in values}
        assert not doubled(seen)
        assert set(seen) == wanted
        if self.spec.shuffle is None:
            for p, values in self.values.items():
                visible = [row.value.decode() for row in rows if row.partition == p]
                assert visible == [self.spec.expected(value) for value in values]
        assert self._noted <= set(rows), "a committed row has vanished"
        uncommitted = self.view.rows(self.output, committed=False)
        assert set(rows) <= set(uncommitted)
        assert {row.value.decode() for row in uncommitted} == wanted
        assert self.view.group(self.group, self.input) == self.view.ends(self.input)
        assert self.view.open_transactions(query_id) == set()
        if self.spec.mirrors:
            assert misplaced_by(self.view, self.spec) == []


class _After:
    """Does something later, in a thread; ``wait`` for it, and for what it raised."""

    def __init__(self, seconds: float, action: Callable[[], None]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(self._run, seconds, action)

    def wait(self) -> None:
        self._done.result()
        self._pool.shutdown()

    @staticmethod
    def _run(seconds: float, action: Callable[[], None]) -> None:
        time.sleep(seconds)
        action()


def tell(course: Course) -> None:
    """Print it for docs/faults.md: ``pytest -s``."""
    print(f"\n{os.environ['PYTEST_CURRENT_TEST']}: {course}")


def condition(ended: StreamingQuery) -> str:
    """The name of the error that a query ended with; empty when it ended well. An error without a name fails."""
    error = ended.exception()
    if error is None:
        return ""
    found = reason(error)
    assert found is not None, f"an error without a name: {error}"
    return found.condition
