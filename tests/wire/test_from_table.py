"""A query from a Delta table by its real tasks and the real protocol, against brokers in this process: what a replay, a
repair and another deal of files to tasks leave in the topic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from kafka.record.memory_records import MemoryRecords

from spark_eos.errors import EosError
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.pipelines.copy.from_table.plan import FromTablePlan
from spark_eos.pipelines.copy.from_table.source import FileStreamReader
from spark_eos.pipelines.copy.from_table.start import SourceTableOptions, planned
from spark_eos.pipelines.copy.from_table.task import TableRows
from spark_eos.pipelines.copy.sql import SqlTransform
from spark_eos.protocol.commit import commit
from spark_eos.protocol.task import MicroBatch, TaskReport
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.preflight import Facts
from spark_eos.sink.session import session_for
from spark_eos.sink.task import Task
from tests.support.judges.conditions import raises
from tests.support.judges.kafka_view import Row
from tests.support.tables.change_feed import ChangedTable, by_library, check_order, state_after, written

from .faults import Schedule
from .judge import come_to_rest, values
from .play import Stage, staged

QUERY, TIMEOUT_MS = "q", 60_000
SQL = "SELECT concat(p, value) AS value FROM input"


class Death(Exception):
    """The driver is gone."""


def upper(batch: pa.RecordBatch) -> pa.RecordBatch:
    joined = pa.array(
        [f"{p}{value}" for p, value in zip(batch["p"].to_pylist(), batch["value"].to_pylist(), strict=True)]
    )
    return pa.RecordBatch.from_arrays([joined], names=["value"])


@dataclass
class Query:
    """``logged``: the ends of its micro-batches, as Spark has them; each run is a new process."""

    stage: Stage
    folder: Path
    transform: Any = None
    tasks: int = 2
    logged: list[str] = field(default_factory=list)
    runs: int = 0

    @property
    def table(self) -> Path:
        return self.folder / "table"

    def append(self, name: str, files: int = 1) -> None:
        """Versions with one file each, of twenty rows in two partitions."""
        for n in range(files):
            values = [f"{name}{n}.{row}" for row in range(20)]
            rows = pa.table({"value": values, "p": ["x"] * 20})
            write_deltalake(str(self.table), rows, mode="append", partition_by=["p"])

    def expected(self, *names: tuple[str, int]) -> Counter[bytes]:
        return Counter(f"x{name}{n}.{row}".encode() for name, files in names for n in range(files) for row in range(20))

    def rows(self) -> Counter[bytes]:
        """What readers of committed rows see, when the markers are written."""
        come_to_rest(self.stage.world, self.stage.cluster)
        logs = self.stage.cluster.partitions
        return Counter(value for place, log in logs.items() if place[0] == "out" for value in values(log))

    def plan(self) -> FromTablePlan:
        sink = {f"kafka.{name}": value for name, value in self.stage.scene.kafka.items() if name == "bootstrap.servers"}
        sink |= {"topic": "out", "ledger.topic": "ledger", "checkpointLocation": str(self.folder / "checkpoint")}
        name = None if self.transform is None else "a name"
        return planned(self.options(), sink, {}, self.transform, name, self.tasks)

    def options(self) -> SourceTableOptions:
        return SourceTableOptions(str(self.table))

    def start(self) -> Run:
        session_for.cache_clear()
        self.runs += 1
        return Run(self, f"run{self.runs}", self.plan())


@dataclass
class Run:
    query: Query
    name: str
    plan: FromTablePlan

    def next(self, die_at: str | None = None) -> list[TaskReport]:
        """Plan a micro-batch, and run it."""
        reader, logged = FileStreamReader(self.plan), self.query.logged
        start = json.loads(logged[-1]) if logged else reader.initialOffset()
        logged.append(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        return self.last(die_at)

    def last(self, die_at: str | None = None) -> list[TaskReport]:
        """Run the micro-batch that was logged last."""
        plan, logged = self.plan, self.query.logged
        reader = FileStreamReader(plan)
        start = json.loads(logged[-2]) if len(logged) > 1 else reader.initialOffset()
        rows, batch = TableRows(plan), len(logged) - 1
        client = broker_client(plan.sink.kafka)
        job = SinkJob(plan.sink, Facts(TIMEOUT_MS, 2, self.name), rows)
        tasks = reader.partitions(start, json.loads(logged[-1]))
        reports = [
            rows.write(
                Task.for_job(client, job, Identity(QUERY, self.name, batch, number, 0)), _batches(reader.read(task))
            )
            for number, task in enumerate(tasks)
        ]

        def reach(point: str) -> None:
            if point == die_at:
                raise Death(point)

        ports = replace(session_for(client, plan.sink, 2, QUERY).ports, reach=reach)
        commit(ports, MicroBatch(self.name, batch, tuple(reports), None, kind=rows.kind))
        return reports

    def lose(self, count: int, of: int = 2) -> None:
        """Abort so many of the transactions that are decided and not committed."""
        head = session_for(broker_client(self.plan.sink.kafka), self.plan.sink, 2, QUERY).ports.ledger.read()
        assert head is not None and head.decision is not None and len(head.decision.written) == of
        for each in head.decision.written[:count]:
            other = ArrowProducer(broker_client(self.plan.sink.kafka), each.pair.id, TIMEOUT_MS)
            other.init()
            other.close()


def _batches(read: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As they come through Spark."""
    for batch in read:
        yield pa.RecordBatch.from_pylist(batch.to_pylist(), schema=batch.schema)


@pytest.fixture
def query(request, tmp_path) -> Iterator[Query]:
    """By SQL, or by the function that is the parameter."""
    with staged(Schedule(1)) as stage:
        yield Query(stage, tmp_path, getattr(request, "param", SqlTransform(SQL)))
        session_for.cache_clear()


@pytest.mark.parametrize("query", [SqlTransform(SQL), upper], ids=["sql", "function"], indirect=True)
def test_each_file_is_written_once(query) -> None:
    """What is there, what comes, and after a restart; not what OPTIMIZE rewrites."""
    query.append("a", 3)
    run = query.start()
    assert sum(report.rows for report in run.next()) == 60
    DeltaTable(str(query.table)).optimize.compact()
    query.append("b", 2)
    run.next()
    query.append("c")
    query.start().next()
    assert query.rows() == query.expected(("a", 3), ("b", 2), ("c", 1))


def test_a_replay_of_what_is_visible_writes_nothing(query) -> None:
    """And reads no file; however it is dealt to tasks."""
    query.append("a", 3)
    query.start().next()
    for file in query.table.rglob("*.parquet"):
        file.unlink()
    query.tasks = 3
    reports = query.start().last()
    assert len(reports) == 3 and all(report.written is None for report in reports)
    assert query.rows() == query.expected(("a", 3))


@pytest.mark.parametrize("point", ["commit.entered", "commit.decided", "commit.ended", "commit.cleaned"])
def test_a_driver_that_dies_while_it_commits_loses_and_doubles_nothing(query, point) -> None:
    """Others append meanwhile."""
    query.append("a", 4)
    with pytest.raises(Death):
        query.start().next(die_at=point)
    query.append("b")
    run = query.start()
    run.last()
    run.next()
    assert query.rows() == query.expected(("a", 4), ("b", 1))


def test_what_was_lost_is_written_again_by_any_deal_of_files(query) -> None:
    """Both decided transactions were aborted: their files are found by the decision and the log."""
    query.append("0")
    query.start().next()
    query.append("a", 4)
    run = query.start()
    with pytest.raises(Death):
        run.next(die_at="commit.decided")
    run.lose(2)
    query.tasks = 3
    query.start().last()
    assert query.rows() == query.expected(("0", 1), ("a", 4))


def test_files_that_were_lost_and_have_changed_stop_the_query(query) -> None:
    """As nobody knows which rows were decided."""
    query.append("a", 2)
    run = query.start()
    with pytest.raises(Death):
        run.next(die_at="commit.decided")
    run.lose(2)
    query.transform = lambda batch: upper(batch).slice(1)
    with pytest.raises(EosError) as error:
        query.start().last()
    assert error.value.condition in ("EOS_REPAIR_SOURCE_CHANGED", "EOS_REPLAY_DIVERGED")
    assert query.rows() == Counter()


def test_a_replay_of_other_files_is_refused(query) -> None:
    """Here the offset log was put back, and another end was planned."""
    query.append("a", 2)
    query.start().next()
    query.append("b")
    query.logged.pop()
    with raises("EOS_REPLAY_DIVERGED"):
        query.start().next()
    assert query.rows() == query.expected(("a", 2))


@dataclass
class ChangesQuery(Query):
    """Of all changes of a table since its first version, or of its rows and then its changes."""

    begins: int | None = 0

    def options(self) -> SourceTableOptions:
        return SourceTableOptions(str(self.table), self.begins, changes=True)

    def seen(self) -> list[Row]:
        """What readers of committed rows see, when the markers are written."""
        come_to_rest(self.stage.world, self.stage.cluster)
        return [
            Row(topic, number, r.offset, r.key, r.value, headers=tuple(r.headers))
            for (topic, number), log in self.stage.cluster.partitions.items()
            if topic == "out"
            for batch in log.visible()
            for records in MemoryRecords(batch.data)
            for r in records
        ]

    def check(self, table: ChangedTable) -> None:
        changes = written(self.seen())
        assert Counter(changes) == by_library(table.path, 0)
        check_order(changes)
        assert state_after(changes) == table.state


@pytest.fixture
def changed(tmp_path) -> Iterator[tuple[ChangesQuery, ChangedTable]]:
    with staged(Schedule(1)) as stage:
        sql = SqlTransform("SELECT key, value, _commit_version, _change_type FROM input")
        yield ChangesQuery(stage, tmp_path, sql), ChangedTable(tmp_path / "table", "wire")
        session_for.cache_clear()


def test_changes_are_written_once_and_in_order_by_one_task(changed) -> None:
    """However many there may be, and whoever runs a micro-batch again."""
    query, table = changed
    table.change(12)
    run = query.start()
    assert len(run.next()) == 1
    table.change(8)
    run.next()
    again = query.start()
    assert sum(report.rows for report in again.last()) == 0
    table.change(4)
    again.next()
    query.check(table)


def test_changes_that_were_lost_are_written_again_before_later_ones(changed) -> None:
    """All of them, as they are in one transaction: by the files that the decision names."""
    query, table = changed
    table.change(9)
    run = query.start()
    with pytest.raises(Death):
        run.next(die_at="commit.decided")
    run.lose(1, of=1)
    table.change(5)
    later = query.start()
    later.last()
    later.next()
    query.check(table)


def test_rows_that_need_no_order_are_shared_out_and_written_again_by_any_deal(changed) -> None:
    """The rows that the table has at first."""
    query, table = changed
    query.begins = None
    for _ in range(4):
        table.insert()
    run = query.start()
    with pytest.raises(Death):
        run.next(die_at="commit.decided")
    run.lose(1)
    query.tasks = 3
    query.start().last()
    found = written(query.seen())
    assert Counter(found) == Counter((table.version, "insert", key, value) for key, value in table.state.items())
    table.change(5)
    query.start().next()
    assert state_after(written(query.seen())) == table.state
