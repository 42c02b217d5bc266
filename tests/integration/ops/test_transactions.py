"""Open transactions, on a real broker: whose they are by `spark-eos status`, and which of them `spark-eos recover`
ends, as a whole or in its parts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from spark_eos.base.retry import retrying
from spark_eos.kafka.admin import topics
from spark_eos.kafka.admin.configs import create_topic
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.ledger import log as ledger_log
from spark_eos.protocol.head import NOBODY, BatchWrite
from spark_eos.protocol.names import ledger_name
from spark_eos.protocol.ports import State
from tests.support.queries.stopped_query import AT_ONCE, PREFIX, Left, left_open


def listed(left: Left, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, dict[str, Any]]:
    """What `spark-eos status` lists, by transactional id."""
    capsys.readouterr()
    left.status("--format", "json", *more)
    return {t["transactional_id"]: t for state in json.loads(capsys.readouterr().out) for t in state["open"]}


@pytest.fixture
def holder_of(left: Left, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ArrowProducer]:
    """``holder_of(query)``: whose transaction is open in the ledger, by a query's id. The ledger is not read for long
    while it is. What comes after it, and each request, has all its time, as a machine may be busy."""

    def holding(query: str) -> ArrowProducer:
        holder = ArrowProducer(broker_client(left.kafka), ledger_name(PREFIX, query), 600_000)
        holder.init()
        holder.write(left.ledger, 1, key=pa.array(["another"]), value=pa.array(["row"]))
        holder.flush()

        def tries(seconds: float) -> Iterator[None]:
            is_held = left.coordinator.describe([holder.name])[holder.name].state is State.ONGOING
            return retrying(0.5 if is_held else seconds)

        monkeypatch.setattr(ledger_log, "retrying", tries)
        return holder

    return holding


def test_without_a_ledger_nothing_is_ended(left, capsys, monkeypatch):
    """Where it cannot be read, or knows nothing of the query, or of one of several, nobody can tell what is decided:
    exit code 2, whatever part is asked for."""
    monkeypatch.setattr(topics, "_UNKNOWN_TOPIC_S", 0.3)
    prepared = left.prepare(0)
    other = Left.__new__(Left)
    other.__dict__ |= left.__dict__ | {"ledger": f"empty-{left.ledger}"}
    assert create_topic(broker_client(left.kafka), other.ledger, 1, 1, {"cleanup.policy": "compact"}) == ""
    for part in (["--abort-only"], ["--settle-only"], []):
        assert left.recover(*part, "--yes", "--ledger-topic", f"no-{left.ledger}") == 2
        assert "EOS_TOPIC_MISSING" in capsys.readouterr().err
        assert other.recover(*part, "--yes") == 2
        assert "EOS_QUERY_UNKNOWN" in capsys.readouterr().err
        assert left.recover("--query", "another", *part, "--yes") == 2
        assert "EOS_QUERY_UNKNOWN" in capsys.readouterr().err
    assert left.ports.ledger.read() == left.head
    assert left.state(prepared) is State.ONGOING


def test_a_ledger_that_is_held_by_the_querys_own_transaction(left, capsys, holder_of):
    """The list names it, and to take the ledger ends it."""
    holder = holder_of(left.query)
    holder.close()
    prepared = left.prepare(0)
    found = listed(left, capsys)
    assert found[holder.name]["kind"] == "ledger"
    assert (found[prepared.pair.id]["decided"], "EOS_LEDGER_HELD" in found[prepared.pair.id]["problem"]) == (None, True)
    assert left.status() == 1
    assert "ledger" in capsys.readouterr().out
    assert left.recover("--abort-only") == 0
    told = capsys.readouterr().out
    assert holder.name in told
    assert "not known until the ledger can be read" in told
    assert left.recover("--abort-only", "--yes") == 0
    assert left.status() == 0
    assert left.ports.ledger.read().run == NOBODY


def test_a_ledger_that_is_held_by_another_query(left, capsys, holder_of):
    """Nothing of this query is ended; the hint leads to the other one."""
    other, prepared = str(uuid.uuid4()), left.prepare(0)
    holder = holder_of(other)
    for part in ("--abort-only", "--settle-only"):
        assert left.recover(part, "--yes") == 2
        said = capsys.readouterr().err
        assert "EOS_LEDGER_HELD" in said
        assert "'spark-eos status' names its query" in said
    assert left.status(query=other) == 1
    assert holder.name in capsys.readouterr().out
    assert left.state(prepared) is State.ONGOING
    holder.abort()
    holder.close()


def test_a_batch_write_is_told_by_its_job_id(cluster, view, topic, capsys):
    """Of one query, of all, and in JSON."""
    with left_open(cluster, view, topic(1), BatchWrite("night of the 23rd", None)) as write:
        prepared = write.prepare(0)
        found = listed(write, capsys)
        assert found[prepared.pair.id]["job"] == "night of the 23rd"
        for words in (["--query", write.query, *AT_ONCE], ["--quiet", "0"]):
            assert write.ask("status", *words) == 1
            assert "job.id 'night of the 23rd'" in capsys.readouterr().out
