"""`spark_eos.copy` to a table of each kind: each record once, with all its parts, whoever else writes and however often
it starts."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_eos import cli
from spark_eos.errors import EosError
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.source_calls import delete_before
from tests.support.queries.table_queries import IntoTable, parts
from tests.support.servers.expiring_credentials import TOKEN, expiring_credentials
from tests.support.tables.table_kinds import KINDS, Delta, Iceberg


@pytest.fixture
def of_kind(spark, view, topic, tmp_path):
    """Makes a query to a table of a kind."""
    yield lambda kind: IntoTable(spark, view, tmp_path / uuid.uuid4().hex, topic(3), kind)
    for running in spark.streams.active:
        running.stop()


@pytest.fixture(params=KINDS)
def query(request, of_kind):
    return of_kind(KINDS[request.param])


@pytest.fixture
def to_delta(of_kind):
    return of_kind(Delta)


def told(query: IntoTable, view: KafkaView, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """What a command says of the query, given the address of its catalog."""
    storage = [f"{name}={value}" for name, value in query.kind.sink().items() if name.startswith("catalog.")]
    before = ["--bootstrap-servers", view.bootstrap_servers, *(w for each in storage for w in ("--storage", each))]
    capsys.readouterr()
    code = cli.main([*before, *words, str(query.checkpoint), "--watch", "0", "--format", "json"])
    (answer,) = json.loads(capsys.readouterr().out)
    return code, answer


def refused(query: IntoTable, **sink) -> EosError:
    """Why it does not start."""
    with pytest.raises(EosError) as error:
        query.start(**sink)
    return error.value


def test_a_table_has_every_part_of_every_record(query, transactions, write, view) -> None:
    """Whatever is null or empty; not what was aborted. In several micro-batches, and again in a second run."""
    query.reads |= {"maxOffsetsPerTrigger": 400}
    before = int(time.time() * 1000) - 60_000
    for p in range(3):
        write(query.topic, b"plain", None, b"", partition=p, key=b"k%d" % p, timestamp=before + p)
        write(query.topic, b"x", partition=p, key=b"", headers=[("a", b"1"), ("a", None), ("", b"")])
        transactions.commit(query.topic, "committed", partition=p)
        transactions.abort(query.topic, "aborted", partition=p)
        write(query.topic, *(b"%d" % i for i in range(300)), partition=p)
    id_ = query.run()
    write(query.topic, b"more", partition=1)
    assert query.run() == id_
    expected = sorted(map(parts, view.rows(query.topic)), key=lambda row: (row["partition"], row["offset"]))
    found = query.rows()
    assert len(found) == 3 * 305 + 1 and {row["topic"] for row in found} == {query.topic}
    names = set(expected[0]) - {"timestamp"}
    assert [{name: row[name] for name in names} for row in found] == [
        {name: row[name] for name in names} for row in expected
    ]
    assert [round(row["timestamp"].timestamp() * 1000) for row in found] == [row["timestamp"] for row in expected]
    assert query.kind.last(id_) == max(
        int(file.name) for file in (query.checkpoint / "commits").iterdir() if file.name.isdigit()
    )


def test_a_micro_batch_that_is_in_the_table_is_not_written_again(query, write, view) -> None:
    """As after a death between the table's commit and Spark's: the replay writes no file, though its records are gone
    from the topic, and the next one goes on."""
    write(query.topic, *(b"%d" % i for i in range(10)), partition=0)
    query.run()
    version, files = query.versions(), set(query.kind.folder.rglob("eos-*.parquet"))
    query.forget(1)
    delete_before(view.admin, query.topic, 10)
    query.run()
    assert files and query.versions() == version and set(query.kind.folder.rglob("eos-*.parquet")) == files
    write(query.topic, b"more", partition=0)
    query.run()
    assert query.kind.places() == Counter({(0, offset): 1 for offset in range(11)})


def test_the_commands_ask_the_table(query, write, view, capsys) -> None:
    """After a death between the table's commit and Spark's, and when the next start has gone on."""
    write(query.topic, *(b"%d" % i for i in range(10)), partition=0)
    query.run()
    query.forget(1)
    code, answer = told(query, view, capsys, "status")
    assert (code, answer["table"]["last_batch"], answer["troubles"]) == (0, 1, [])
    assert answer["next"] == "runs micro-batch 1 again: the table has it already, so no row is written again"
    code, answer = told(query, view, capsys, "recover", "--yes")
    assert (code, answer["sinks"], answer["table"]["last_batch"]) == (0, [], 1)
    write(query.topic, b"more", partition=0)
    query.run()
    code, answer = told(query, view, capsys, "status")
    assert (code, answer["table"]["last_batch"], answer["lag"]) == (0, 2, 0)
    assert (answer["next"], answer["troubles"], answer["unknown"]) == ("plans micro-batch 3", [], None)


@pytest.mark.chaos
def test_credentials_that_expire_stop_nothing(spark, view, topic, write, tmp_path) -> None:
    """Each load of the table ends those that were handed out before, as in a query that runs for days. None of them is
    in the checkpoint."""
    with expiring_credentials(tmp_path) as kind:
        query = IntoTable(spark, view, tmp_path, topic(1), lambda folder: kind)
        query.reads |= {"maxOffsetsPerTrigger": 10}
        write(query.topic, *(b"%d" % i for i in range(30)), partition=0)
        id_ = query.run()
        assert kind.last(id_) >= 2
        offsets = kind.load().scan().to_arrow().column("offset").to_pylist()
        refused_tokens = kind.gate.refused
    assert sorted(offsets) == list(range(30)) and not refused_tokens
    files = [file for file in query.checkpoint.rglob("*") if file.is_file()]
    assert files and not any(TOKEN.encode() in file.read_bytes() for file in files)


def test_a_new_table_gets_partitions_and_properties(to_delta, write) -> None:
    """Rows go to their folders, and a later run keeps them."""
    write(to_delta.topic, b"1", partition=0)
    write(to_delta.topic, b"2", partition=2)
    to_delta.run(**{"partitionBy": "topic, partition", "delta.logRetentionDuration": "interval 60 days"})
    write(to_delta.topic, b"3", partition=2)
    to_delta.run()
    table = DeltaTable(str(to_delta.table))
    assert table.metadata().partition_columns == ["topic", "partition"]
    assert table.metadata().configuration["delta.logRetentionDuration"] == "interval 60 days"
    assert [(row["partition"], row["offset"]) for row in to_delta.rows()] == [(0, 0), (2, 0), (2, 1)]
    assert list((to_delta.table / f"topic={to_delta.topic}" / "partition=2").glob("*.parquet"))


def test_a_new_iceberg_table_gets_partition_fields(of_kind, write) -> None:
    """Rows go to a file for each day, which has its columns, too; a later run keeps the fields."""
    query = of_kind(Iceberg)
    day = 24 * 3600 * 1000
    write(query.topic, b"1", partition=0, timestamp=5 * day)
    write(query.topic, b"2", partition=2, timestamp=6 * day - 1)
    query.run(partitionBy="day(timestamp), partition")
    write(query.topic, b"3", partition=2, timestamp=6 * day)
    query.run()
    partitions = query.kind.load().inspect.partitions().to_pylist()
    assert sorted((str(each["partition"]["timestamp_day"]), each["partition"]["partition"]) for each in partitions) == [
        ("1970-01-06", 0),
        ("1970-01-06", 2),
        ("1970-01-07", 2),
    ]
    assert query.kind.places() == Counter({(0, 0): 1, (2, 0): 1, (2, 1): 1})
    assert "Option 'table' is nowhere" in refused(query, table="nowhere").message
    assert refused(query, table="tests.other").entry == "EOS_ICEBERG_NO_TABLE"
