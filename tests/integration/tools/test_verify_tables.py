"""`spark-eos verify` between topics and tables, on a real broker: tables by their libraries, with planted faults."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from spark_eos import cli
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.tools import verify as ops
from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.verify import IdPlace
from tests.support.judges.kafka_view import open_view, write

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


class Delta:
    """A Delta table by its own library."""

    kind = "delta"

    def __init__(self, folder: Path) -> None:
        self.path, self.settings = str(folder / "a table"), dict[str, str]()

    @property
    def address(self) -> str:
        return f"delta:{self.path}"

    def append(self, rows: Sequence[TableRow], by: Sequence[str] = ()) -> None:
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

    def tidy(self) -> None:
        table = DeltaTable(self.path)
        table.optimize.compact()
        table.create_checkpoint()


class Iceberg:
    """An Iceberg table by its own library."""

    kind = "iceberg"

    def __init__(self, folder: Path) -> None:
        where = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
        self.settings = {f"catalog.{name}": value for name, value in where.items()}
        self.catalog = SqlCatalog("default", **where)
        self.address = "iceberg:lake.records"

    def append(self, rows: Sequence[TableRow], by: Sequence[str] = ()) -> None:
        if not self.catalog.namespace_exists("lake"):
            self.catalog.create_namespace("lake")
            table = self.catalog.create_table("lake.records", SCHEMA)
            with table.update_spec() as spec:
                for name in by:
                    spec.add_identity(name)
        self.catalog.load_table("lake.records").append(table_of(rows))

    def remember(self, query: str, ends: Mapping[tuple[str, int], int]) -> None:
        table = self.catalog.load_table("lake.records")
        ranges = json.dumps({f"{t}/{p}": [0, end] for (t, p), end in ends.items()})
        table.append(table_of([]), snapshot_properties={"spark-eos.query": query, "spark-eos.ranges": ranges})
        snapshot = table.current_snapshot()
        assert snapshot is not None
        table.manage_snapshots().create_tag(snapshot.snapshot_id, f"eos-{query}").commit()

    def delete(self, offset: int) -> None:
        self.catalog.load_table("lake.records").delete(f"offset = {offset}")

    def tidy(self) -> None:
        """Expire what can be."""
        table = self.catalog.load_table("lake.records")
        kept = {ref.snapshot_id for ref in table.refs().values()}
        gone = [each.snapshot_id for each in table.snapshots() if each.snapshot_id not in kept]
        table.maintenance.expire_snapshots().by_ids(gone).commit()


KINDS = {"delta": Delta, "iceberg": Iceberg}


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

    def ask(self, table: Delta | Iceberg, **more: Any) -> ops.Report:
        kafka = KafkaProperties({"bootstrap.servers": self.cluster.bootstrap_servers})
        (_, address) = ops.side([table.address], table.settings)
        asked: dict[str, Any] = {"id": PLACE, "output_id": PLACE, "inputs": (self.topic,), "outputs": ()}
        asked |= {"output_table": address, "order": "none", **more}
        return ops.verify(ops.Comparison(kafka, **asked))

    def command(self, *more: str, table: Delta | Iceberg) -> int:
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


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Delta | Iceberg:
    found: Delta | Iceberg = KINDS[request.param](tmp_path)
    return found


@dataclass(frozen=True)
class Drawn:
    """What a table has: how often each committed and each aborted row, by their numbers; rows of no topic; rows without
    an offset; rows whose value is another one. ``ends``: of the query, by partition; ``parts``: how many appends."""

    copies: Sequence[int]
    aborted: Sequence[int]
    strangers: int
    nameless: int
    changed: frozenset[int]
    ends: tuple[int, int]
    parts: int
    by: tuple[str, ...]
    is_tidy: bool

    def rows(self, records: Records) -> list[TableRow]:
        found: list[TableRow] = []
        for n, (place, copies) in enumerate(zip(records.committed, self.copies, strict=True)):
            found += [records.row(place, b"changed" if n in self.changed else None)] * copies
        for place, copies in zip(records.aborted, self.aborted, strict=True):
            found += [records.row(place)] * copies
        found += [("elsewhere", 0, n, b"") for n in range(self.strangers)]
        found += [(records.topic, 0, None, b"")] * self.nameless
        random.Random(0).shuffle(found)
        return found

    def expected(self, records: Records) -> dict[str, int]:
        """Counted by what a table has of each place, without the tool."""
        counts = Counter[str]()
        for n, ((p, offset), copies) in enumerate(zip(records.committed, self.copies, strict=True)):
            is_due = offset < self.ends[p]
            if copies:
                counts.update({"pairs": 1, "doubled": copies - 1, "early": not is_due, "torn": n in self.changed})
            else:
                counts["lost" if is_due else "waiting"] += 1
        counts.update({"aborted_visible": sum(self.aborted), "unknown": self.strangers, "torn": self.nameless})
        return {name: count for name, count in counts.items() if count}


DRAWN = st.builds(
    Drawn,
    copies=st.lists(st.sampled_from([1, 1, 1, 1, 0, 2, 3]), min_size=24, max_size=24).filter(any),
    aborted=st.lists(st.sampled_from([0, 0, 1, 2]), min_size=4, max_size=4),
    strangers=st.integers(0, 2),
    nameless=st.integers(0, 2),
    changed=st.frozensets(st.integers(0, 23), max_size=2),
    ends=st.tuples(st.integers(0, 18), st.integers(0, 18)),
    parts=st.integers(1, 3),
    by=st.sampled_from([(), ("partition",), ("topic", "partition")]),
    is_tidy=st.booleans(),
)


@pytest.mark.parametrize("kind", KINDS)
def test_finds_what_is_counted_without_it(records: Records, kind: str) -> None:
    """Any table: lost, doubled, changed, early, aborted, unknown and damaged rows, in several appends, partitioned or
    not, compacted, or with expired snapshots."""

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(DRAWN)
    def compare(drawn: Drawn) -> None:
        with tempfile.TemporaryDirectory() as folder:
            table, rows = KINDS[kind](Path(folder)), drawn.rows(records)
            for part in range(drawn.parts):
                table.append(rows[part :: drawn.parts], drawn.by)
            table.remember("q", {(records.topic, p): end for p, end in enumerate(drawn.ends)})
            if drawn.is_tidy:
                table.tidy()
            report = records.ask(table, query="q", same_value=True)
        sides = {"input": 24, "input_uncommitted": 4, "output": len(rows)}
        assert {name: count for name, count in report.counts.items() if count} == sides | drawn.expected(records)

    compare()


def test_a_table_with_every_record_once(records, table, capsys) -> None:
    """By the command, by places, and by a column; the same value twice is another question than the same place."""
    table.append(records.all_rows(), ["partition"])
    assert records.command("--id", "place", "--same-value", table=table) == 0
    assert capsys.readouterr().out.endswith("\nOK: 24 rows got through exactly once\n")
    assert records.command("--id", "value", table=table) == 0
    assert records.command("--id", "value", "--output-id", "column:value", table=table) == 0
    assert records.command("--id", "place", "--output-id", "place:topic,partition,offset", table=table) == 0


def test_rows_that_were_deleted_are_lost_with_the_commit_that_may_have_removed_them(records, table) -> None:
    """It is named beside them."""
    table.append(records.all_rows())
    table.delete(3)
    report = records.ask(table)
    assert report.counts["lost"] == 2 and report.faults == ["lost"]
    assert {example.input for example in report.examples["lost"]} == {f"{records.topic}-{p}@3" for p in range(2)}
    (warning,) = report.warnings
    assert "has removed rows of" in warning and table.address in warning


def by_id(report: ops.Report) -> dict[str, int]:
    return {name: count for name, count in report.counts.items() if count}


def from_table(records: Records, table: Delta, output: str) -> ops.Report:
    """A table's appends in a topic, by the ids in ``value``."""
    value = IdPlace.parse("value")
    (_, address) = ops.side([table.address], {})
    sides = {"inputs": (), "input_table": address, "outputs": (output,), "output_table": None}
    return records.ask(table, **sides, id=value, output_id=value)


def test_appends_of_a_table_in_a_topic(records, topic, tmp_path) -> None:
    """Each row of the table once; then one that is lost, one doubled, and one that is in no table."""
    table, output = Delta(tmp_path), topic(2)
    values = [f"r{n}" for n in range(10)]
    for start in range(0, 10, 5):
        table.append([("t", 0, n, values[n].encode()) for n in range(start, start + 5)])
    table.tidy()
    write(
        records.cluster.bootstrap_servers, output, [(n % 2, value) for n, value in enumerate(values[1:])], commit=True
    )
    report = from_table(records, table, output)
    assert by_id(report) == {"input": 10, "output": 9, "pairs": 9, "lost": 1}
    assert report.examples["lost"] == [ops.Example("r0", table.address, None)]
    write(records.cluster.bootstrap_servers, output, [(0, "r0"), (1, "r3"), (0, "new")])
    assert by_id(from_table(records, table, output)) == {
        "input": 10,
        "output": 12,
        "pairs": 10,
        "doubled": 1,
        "unknown": 1,
    }


def test_what_a_table_lacks_is_no_finding(records, table, capsys) -> None:
    """But the wrong question: a table that is not there, a column, a query, and an id in any row."""
    said = {
        ("column:nothing",): "no ids in the column nothing: its columns are topic, partition, offset, key, value",
        ("column:value", "--query", "q"): "has no end offsets of a query q",
        ("column:key",): "No row of the output",
    }
    assert records.command("--id", "value", "--output-id", "column:value", table=table) == 2
    assert f"{table.address} cannot be read" in capsys.readouterr().err
    table.append([(*row[:3], None) for row in records.all_rows()])
    for (place, *more), text in said.items():
        assert records.command("--id", "value", "--output-id", place, *more, table=table) == 2
        assert text in capsys.readouterr().err
