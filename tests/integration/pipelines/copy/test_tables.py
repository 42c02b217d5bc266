"""`spark_eos.copy` to a table of each kind: each record once, with all its parts, whoever else writes and however often
it starts."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from spark_eos import cli
from tests.support.judges.conditions import raises
from tests.support.judges.kafka_view import KafkaView, Row
from tests.support.queries.drained_query import Drained
from tests.support.queries.source_calls import delete_before
from tests.support.servers.expiring_credentials import TOKEN, expiring_credentials
from tests.support.tables.table_kinds import KINDS, TableKind


class IntoTable(Drained):
    """A query and its checkpoint; ``run`` may be called again and again. ``reads``: options of the source besides."""

    def __init__(self, spark: SparkSession, view: KafkaView, folder: Path, topic: str, kind: TableKind) -> None:
        self.topic, self.kind, self.checkpoint = topic, kind, folder / "checkpoint"
        self._spark, self._servers = spark, {"kafka.bootstrap.servers": view.bootstrap_servers}
        self.reads: dict[str, Any] = {"includeHeaders": True}

    def start(self, **more: Any) -> StreamingQuery:
        """``more``: arguments of `spark_eos.copy`."""
        return spark_eos.copy(
            self._spark,
            source={**self._servers, "subscribe": self.topic, "startingOffsets": "earliest", **self.reads},
            sink=self.kind.sink(),
            checkpoint=str(self.checkpoint),
            trigger={"availableNow": True},
            **more,
        )


def parts(row: Row) -> dict[str, Any]:
    """What the table has of a record."""
    headers = [{"key": key, "value": value} for key, value in row.headers or ()] or None
    return {
        "partition": row.partition,
        "offset": row.offset,
        "key": row.key,
        "value": row.value,
        "headers": headers,
        "timestamp": row.timestamp,
    }


@pytest.fixture(params=KINDS)
def query(request, spark, view, topic, tmp_path):
    """To a table of each kind."""
    folder = tmp_path / uuid.uuid4().hex
    yield IntoTable(spark, view, folder, topic(3), KINDS[request.param](folder))
    for running in spark.streams.active:
        running.stop()


def told(query: IntoTable, view: KafkaView, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """What a command says of the query, given the address of its catalog."""
    storage = [f"{name}={value}" for name, value in query.kind.sink().items() if name.startswith("catalog.")]
    before = ["--bootstrap-servers", view.bootstrap_servers, *(w for each in storage for w in ("--storage", each))]
    capsys.readouterr()
    code = cli.main([*before, *words, str(query.checkpoint), "--watch", "0", "--format", "json"])
    (answer,) = json.loads(capsys.readouterr().out)
    return code, answer


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
    found = sorted(query.kind.rows(), key=lambda row: (row["partition"], row["offset"]))
    assert len(found) == 3 * 305 + 1 and {row["topic"] for row in found} == {query.topic}
    names = set(expected[0]) - {"timestamp"}
    assert [{name: row[name] for name in names} for row in found] == [
        {name: row[name] for name in names} for row in expected
    ]
    assert [round(row["timestamp"].timestamp() * 1000) for row in found] == [row["timestamp"] for row in expected]
    assert query.kind.last(id_) == max(
        int(file.name) for file in (query.checkpoint / "commits").iterdir() if file.name.isdigit()
    )


def test_a_micro_batch_that_is_in_the_table_is_not_written_again(query, write, view, capsys) -> None:
    """As after a death between the table's commit and Spark's: the commands say so, the replay writes no file, though
    its records are gone from the topic, and the next one goes on."""
    write(query.topic, *(b"%d" % i for i in range(10)), partition=0)
    query.run()
    version, files = query.kind.versions(), set(query.kind.folder.rglob("eos-*.parquet"))
    query.forget(1)
    code, answer = told(query, view, capsys, "status")
    assert (code, answer["table"]["last_batch"], answer["troubles"]) == (0, 1, [])
    assert answer["next"] == "runs micro-batch 1 again: the table has it already, so no row is written again"
    code, answer = told(query, view, capsys, "recover", "--yes")
    assert (code, answer["sinks"], answer["table"]["last_batch"]) == (0, [], 1)
    delete_before(view.admin, query.topic, 10)
    query.run()
    assert files and query.kind.versions() == version and set(query.kind.folder.rglob("eos-*.parquet")) == files
    write(query.topic, b"more", partition=0)
    query.run()
    assert query.kind.places() == Counter({(0, offset): 1 for offset in range(11)})
    code, answer = told(query, view, capsys, "status")
    assert (code, answer["table"]["last_batch"], answer["lag"]) == (0, 2, 0)
    assert (answer["next"], answer["troubles"], answer["unknown"]) == ("plans micro-batch 3", [], None)


@pytest.mark.chaos
def test_credentials_that_expire_stop_nothing(spark, view, topic, write, tmp_path) -> None:
    """Each load of the table ends those that were handed out before, as in a query that runs for days. None of them is
    in the checkpoint."""
    with expiring_credentials(tmp_path) as kind:
        query = IntoTable(spark, view, tmp_path, topic(1), kind)
        query.reads |= {"maxOffsetsPerTrigger": 10}
        write(query.topic, *(b"%d" % i for i in range(30)), partition=0)
        id_ = query.run()
        assert kind.last(id_) >= 2
        offsets = kind.load().scan().to_arrow().column("offset").to_pylist()
        refused_tokens = kind.gate.refused
    assert sorted(offsets) == list(range(30)) and not refused_tokens
    files = [file for file in query.checkpoint.rglob("*") if file.is_file()]
    assert files and not any(TOKEN.encode() in file.read_bytes() for file in files)


@pytest.mark.parametrize("query", ["delta"], indirect=True)
def test_what_cannot_be_a_table_is_refused_before_anything_is_there(query, write) -> None:
    """Neither a table nor a checkpoint."""
    write(query.topic, b"1", partition=0)
    with raises("EOS_OPTION_CONFLICT.remove"):
        query.start(partition="key")
    assert not query.kind.is_there() and not query.checkpoint.exists()
