"""`spark-eos verify` between topics and tables, on a real broker: tables by their libraries, with planted faults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from spark_eos import cli
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.tools import verify as ops
from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.verify import IdPlace
from tests.support.judges.kafka_view import open_view, write
from tests.support.tables.table_kinds import Delta, Iceberg

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
PLACE = IdPlace.parse("place")
#: A row of a table: topic, partition, offset and value.
TableRow = tuple[str | None, int | None, int | None, bytes | None]


class DeltaRows(Delta):
    """A Delta table by its own library."""

    settings: Mapping[str, str] = {}

    @property
    def address(self) -> str:
        return f"delta:{self.path}"

    def write(self, rows: Sequence[TableRow], by: Sequence[str] = ()) -> None:
        write_deltalake(self.path, table_of(rows), mode="append", partition_by=list(by) or None)

    def remember(self, query: str, ends: Mapping[tuple[str, int], int]) -> None:
        """As a query does, without a row."""
        pairs = {query: 7, f"{query}#digest": 1234, **{f"{query}#{t}-{p}": end for (t, p), end in ends.items()}}
        transactions = [Transaction(name, version) for name, version in pairs.items()]
        properties = CommitProperties(app_transactions=transactions)
        table = DeltaTable(self.path)
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)

    def delete(self, offset: int) -> None:
        DeltaTable(self.path).delete(f'"offset" = {offset}')


class IcebergRows(Iceberg):
    """An Iceberg table by its own library."""

    address = f"iceberg:{Iceberg.table}"

    @property
    def settings(self) -> dict[str, str]:
        return {name: value for name, value in self.sink().items() if name.startswith("catalog.")}

    def write(self, rows: Sequence[TableRow], by: Sequence[str] = ()) -> None:
        if not self.is_there():
            self.opened().create_namespace("tests")
            with self.opened().create_table(self.table, SCHEMA).update_spec() as spec:
                for name in by:
                    spec.add_identity(name)
        self.load().append(table_of(rows))

    def remember(self, query: str, ends: Mapping[tuple[str, int], int]) -> None:
        table = self.load()
        ranges = json.dumps({f"{t}/{p}": [0, end] for (t, p), end in ends.items()})
        table.append(table_of([]), snapshot_properties={"spark-eos.query": query, "spark-eos.ranges": ranges})
        snapshot = table.current_snapshot()
        assert snapshot is not None
        table.manage_snapshots().create_tag(snapshot.snapshot_id, f"eos-{query}").commit()

    def delete(self, offset: int) -> None:
        self.load().delete(f"offset = {offset}")


def table_of(rows: Sequence[TableRow]) -> pa.Table:
    columns = list(zip(*((*row[:3], row[3], row[3]) for row in rows), strict=True)) or [()] * len(SCHEMA)
    return pa.table([pa.array(column, each.type) for column, each in zip(columns, SCHEMA, strict=True)], SCHEMA)


@dataclass(frozen=True)
class Records:
    """A topic with two partitions. ``committed``: place → value; ``aborted``: places of rows that nobody committed."""

    cluster: DevCluster
    topic: str
    committed: Mapping[tuple[int, int], bytes]
    aborted: Sequence[tuple[int, int]]

    def row(self, place: tuple[int, int], value: bytes | None = None) -> TableRow:
        return self.topic, *place, self.committed.get(place, b"aborted") if value is None else value

    def all_rows(self) -> list[TableRow]:
        return [self.row(place) for place in self.committed]

    def ask(self, table: DeltaRows | IcebergRows, **more: Any) -> ops.Report:
        kafka = KafkaProperties({"bootstrap.servers": self.cluster.bootstrap_servers})
        (_, address) = ops.side([table.address], table.settings)
        asked: dict[str, Any] = {"id": PLACE, "output_id": PLACE, "inputs": (self.topic,), "outputs": ()}
        asked |= {"output_table": address, "order": "none", **more}
        return ops.verify(ops.Comparison(kafka, **asked))

    def command(self, *more: str, table: DeltaRows | IcebergRows) -> int:
        storage = [f"--storage={name}={value}" for name, value in table.settings.items()]
        servers = ["--bootstrap-servers", self.cluster.bootstrap_servers, *storage]
        return cli.main([*servers, "verify", "--input", self.topic, "--output", table.address, *more])


@pytest.fixture(scope="module")
def records(cluster: DevCluster) -> Records:
    name, servers = "records-of-tables", cluster.bootstrap_servers
    cluster.create_topic(name, 2)
    write(servers, name, [(n % 2, f"first {n}") for n in range(12)], commit=True)
    write(servers, name, [(n % 2, f"never {n}") for n in range(4)], commit=False)
    write(servers, name, [(n % 2, f"second {n}") for n in range(12)], commit=True)
    with open_view(servers) as view:
        committed = {(row.partition, row.offset): row.value or b"" for row in view.rows(name)}
        every = {(row.partition, row.offset) for row in view.rows(name, committed=False)}
    assert len(committed) == 24 and len(every) == 28
    return Records(cluster, name, committed, sorted(every - committed.keys()))


@pytest.fixture(params=[DeltaRows, IcebergRows], ids=lambda kind: kind.name)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaRows | IcebergRows:
    found: DeltaRows | IcebergRows = request.param(tmp_path)
    return found


def by_count(report: ops.Report) -> dict[str, int]:
    return {name: count for name, count in report.counts.items() if count}


def test_each_fault_is_counted(records, table) -> None:
    """Lost, doubled, changed, early, aborted, unknown and damaged rows, beside the end offsets of a query: in several
    appends, in partitions, compacted, or with expired snapshots."""
    ends = {(records.topic, 0): 15, (records.topic, 1): 5}
    rows = [records.row((p, n)) for p, n in records.committed if n < ends[records.topic, p] and (p, n) > (0, 2)]
    rows += [records.row((0, 1))] * 2 + [records.row((0, 2), b"changed"), records.row((0, 15))]
    rows += (
        [records.row(records.aborted[0])] * 2
        + [("elsewhere", 0, n, b"") for n in range(3)]
        + [(records.topic, 0, None, b"")]
    )
    for part in range(3):
        table.write(rows[part::3], ["topic", "partition"])
    table.remember("q", ends)
    table.tidy()
    sides = {"input": 24, "input_uncommitted": 4, "output": 23, "pairs": 16, "waiting": 7}
    faults = {"lost": 1, "doubled": 1, "torn": 2, "early": 1, "aborted_visible": 2, "unknown": 3}
    assert by_count(records.ask(table, query="q", same_value=True)) == sides | faults


def test_a_table_with_every_record_once(records, table, capsys) -> None:
    """By the command, by places, and by a column; the same value twice is another question than the same place."""
    table.write(records.all_rows(), ["partition"])
    assert records.command("--id", "place", "--same-value", table=table) == 0
    assert capsys.readouterr().out.endswith("\nOK: 24 rows got through exactly once\n")
    assert records.command("--id", "value", table=table) == 0
    assert records.command("--id", "value", "--output-id", "column:value", table=table) == 0
    assert records.command("--id", "place", "--output-id", "place:topic,partition,offset", table=table) == 0


def test_rows_that_were_deleted_are_lost_with_the_commit_that_may_have_removed_them(records, table) -> None:
    """It is named beside them."""
    table.write(records.all_rows())
    table.delete(3)
    report = records.ask(table)
    assert report.counts["lost"] == 2 and report.faults == ["lost"]
    assert {example.input for example in report.examples["lost"]} == {f"{records.topic}-{p}@3" for p in range(2)}
    (warning,) = report.warnings
    assert "has removed rows of" in warning and table.address in warning


def test_appends_of_a_table_in_a_topic(records, topic, tmp_path) -> None:
    """Each row of the table once, but one that is lost and one that is doubled; and one that is in no table."""
    table, output, value = DeltaRows(tmp_path), topic(2), IdPlace.parse("value")
    for start in range(0, 10, 5):
        table.write([("t", 0, n, b"r%d" % n) for n in range(start, start + 5)])
    table.tidy()
    rows = [*((n % 2, f"r{n}") for n in range(1, 10)), (1, "r3"), (0, "new")]
    write(records.cluster.bootstrap_servers, output, rows, commit=True)
    (_, address) = ops.side([table.address], {})
    sides = {"inputs": (), "input_table": address, "outputs": (output,), "output_table": None}
    report = records.ask(table, **sides, id=value, output_id=value)
    faults = {"lost": 1, "doubled": 1, "unknown": 1}
    assert by_count(report) == {"input": 10, "output": 11, "pairs": 9} | faults
    assert report.examples["lost"] == [ops.Example("r0", table.address, None)]


def test_what_a_table_lacks_is_no_finding(records, table, capsys) -> None:
    """But the wrong question: a table that is not there, a column, a query, and an id in any row."""
    said = {
        ("column:nothing",): "no ids in the column nothing: its columns are topic, partition, offset, key, value",
        ("column:value", "--query", "q"): "has no end offsets of a query q",
        ("column:key",): "No row of the output",
    }
    assert records.command("--id", "value", "--output-id", "column:value", table=table) == 2
    assert f"{table.address} cannot be read" in capsys.readouterr().err
    table.write([(*row[:3], None) for row in records.all_rows()])
    for (place, *more), text in said.items():
        assert records.command("--id", "value", "--output-id", place, *more, table=table) == 2
        assert text in capsys.readouterr().err
