"""What a start, `spark-eos status` and `spark-eos recover` say of a query to a table, by checkpoint and table: the
same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import Position, to_spark
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError
from spark_eos.kafka.admin.topics import Topic
from spark_eos.ops import recover, status
from spark_eos.ops.answer import Answer
from spark_eos.ops.drop_planned import drop_planned
from spark_eos.pipelines.copy.table.options import table_options
from spark_eos.pipelines.copy.table.start import planned
from spark_eos.pipelines.tables.micro_batch import RangeBatch
from spark_eos.source.schema import arrow_schema
from tests.support.tables.table_kinds import KINDS, Delta, Iceberg, TableKind
from tests.unit.ops.conftest import Topics

QUERY = "b3f0"
SCHEMA = arrow_schema(include_headers=False)
READS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
#: No request goes to it: topics are looked up by what `kafka` replaces, and no ledger is read.
CLUSTER: Any = SimpleNamespace(client=None)


@pytest.fixture(autouse=True)
def topic(kafka: Topics) -> None:
    """A topic with one partition, and no ledger."""
    kafka.there = {"t": Topic("id", 1, False)}


@pytest.fixture(params=KINDS)
def kind(request, tmp_path) -> TableKind:
    return KINDS[request.param](tmp_path / "kind")


def batch(number: int, shift: int = 0) -> RangeBatch:
    """Micro-batches of ten offsets, from 1 on: the first one is empty."""
    ranges = [OffsetRange("t", 0, 10 * (number - 1), 10 * number + shift, "id")] if number else []
    return RangeBatch(QUERY, number, tuple(ranges))


def location(kind: TableKind) -> Path:
    return kind.folder / "checkpoint"


def write_checkpoint(kind: TableKind, planned: int, done: int, **mark: str) -> None:
    """That a query has left which has planned and finished micro-batches up to these numbers."""
    folder, sink = location(kind), mark or table_options(kind.sink(), {}).mark
    for log, last in (("offsets", planned), ("commits", done)):
        (folder / log).mkdir(parents=True)
        for number in range(last + 1):
            line = to_spark(Position({"t": {0: 10 * number}}, {"t": "id"}, None, "c", copy=True, sink=sink))
            lines = ["v1", "{}", *([json.dumps(line)] if log == "offsets" else [])]
            (folder / log / str(number)).write_text("\n".join(lines))
    (folder / "metadata").write_text(json.dumps({"id": QUERY}))


def commit(kind: TableKind, *batches: RangeBatch) -> None:
    target = kind.place().target(SCHEMA, create=True)
    for each in batches:
        target.commit(each, [], 0, is_there=False)


def checkpoint(kind: TableKind) -> Checkpoint:
    """As a command opens it that has the properties of the catalog, but not the table's name."""
    settings = {name: value for name, value in kind.sink().items() if name.startswith("catalog.")}
    return Checkpoint(str(location(kind)), HadoopSettings(settings))


def asked(kind: TableKind) -> Answer:
    return status.status(CLUSTER, checkpoint(kind), [], watch_s=0, quiet_s=60)


def recovered(kind: TableKind) -> Answer:
    return recover.recover(CLUSTER, checkpoint(kind), [], recover.Wanted(yes=True, watch_s=0))


def started(kind: TableKind) -> str | None:
    """The condition by which a start stops, or the commit of its first micro-batch; None where it goes on."""
    folder = location(kind)
    next_ = Checkpoint(str(folder)).last_batch("offsets")
    is_planned_only = next_ != Checkpoint(str(folder)).last_batch("commits")
    number = 0 if next_ is None else next_ if is_planned_only else next_ + 1
    try:
        plan = planned(READS, table_options(kind.sink(), {}), str(folder))
        plan.table.commit(batch(number), [], 0, is_there=False)
    except EosError as error:
        return error.condition
    return None


NO_TABLE = "EOS_{}_NO_TABLE"
#: Which micro-batches the table has (none is there: None); the last that is planned and the last that is done.
STATES: list[tuple[Sequence[int] | None, int, int, str, str | None]] = [
    (None, 0, -1, "runs micro-batch 0 again: the table does not have it yet", None),
    (None, 1, 1, f"stops: [{NO_TABLE}]", NO_TABLE),
    ([0, 1, 2], 2, 2, "plans micro-batch 3", None),
    ([0, 1], 2, 1, "runs micro-batch 2 again: the table does not have it yet", None),
    ([0, 1, 2], 2, 1, "runs micro-batch 2 again: the table has it already, so no row is written again", None),
    ([0], 0, -1, "runs micro-batch 0 again: the table has it already", None),
    ([], 0, -1, "runs micro-batch 0 again: the table does not have it yet", None),
    ([0, 1, 2, 3], 2, 2, "stops: [EOS_TABLE_CHECKPOINT_BEHIND]", "EOS_TABLE_CHECKPOINT_BEHIND"),
    ([0, 1, 2, 3], 2, 1, "stops: [EOS_TABLE_CHECKPOINT_BEHIND]", "EOS_TABLE_CHECKPOINT_BEHIND"),
    ([0, 1], 2, 2, "stops: [EOS_OTHER_TABLE]", "EOS_OTHER_TABLE"),
    ([], 2, 2, "stops: [EOS_OTHER_TABLE]", "EOS_OTHER_TABLE"),
]


@pytest.mark.parametrize(("there", "planned", "done", "does", "stops"), STATES)
def test_a_start_does_what_is_said(kind, there, planned, done, does, stops) -> None:
    """Nothing is said of a ledger, and there is nothing to recover. A table that was dropped is not created anew, but
    before the first micro-batch is done, it is."""
    does, stops = does.format(kind.name.upper()), stops and stops.format(kind.name.upper())
    if there is not None:
        commit(kind, *map(batch, there))
    elif isinstance(kind, Iceberg):
        kind.opened().create_namespace_if_not_exists("tests")
    write_checkpoint(kind, planned, done)
    answer, (data,) = asked(kind), asked(kind).data
    assert answer.code == (1 if stops else 0)
    assert answer.text.lower().count(f"the next start {does.lower()}") == 1 and data["next"].startswith(does)
    assert (data["table"]["last_batch"], data["table"]["stop"]) == (max(there or [], default=None), stops)
    assert data["lag"] == 100 - 10 * max(done, 0)
    assert "ledger" not in answer.text and "transactions" not in answer.text
    assert "Nothing needs to be done" in recovered(kind).text and recovered(kind).code == 0
    assert "ledger" not in recovered(kind).text
    assert started(kind) == stops


def test_a_micro_batch_of_the_same_number(kind) -> None:
    """Only the start that reads the log knows whether it has the same offsets."""
    commit(kind, batch(0), batch(1), batch(2, shift=3))
    write_checkpoint(kind, 2, 1)
    assert "if its offsets are the same, no row is added" in asked(kind).text and asked(kind).code == 0
    assert started(kind) == "EOS_TABLE_TWO_QUERIES"


def test_a_table_that_was_put_back(kind) -> None:
    """By a RESTORE or a rollback, which the start's first commit stops at."""
    commit(kind, batch(0), batch(1))
    kind.put_back()
    write_checkpoint(kind, 1, 1)
    assert (asked(kind).code, asked(kind).data[0]["table"]["stop"]) == (1, "EOS_OTHER_TABLE")
    assert started(kind) == "EOS_OTHER_TABLE"


def test_a_table_that_cannot_be_asked(kind) -> None:
    """All else is said, and that this is not known; no secret."""
    commit(kind, batch(0))
    if isinstance(kind, Delta):
        (kind.path / "_delta_log" / f"{0:020d}.json").write_text("no JSON")
    else:
        kind.more = {"uri": "sqlite:////nowhere/catalog.db"}
    write_checkpoint(kind, 0, 0)
    answer, (data,) = asked(kind), asked(kind).data
    assert (answer.code, data["next"], data["lag"]) == (2, None, 100)
    assert "cannot be asked: [EOS_" in data["unknown"] and data["unknown"] in answer.text
    assert "--storage" in data["unknown"]
    assert recovered(kind).code == 0


@pytest.mark.parametrize("sink", [{}, {"format": "another", "path": "/p"}, {"path": "/p"}])
def test_a_mark_that_names_no_known_table(tmp_path, sink) -> None:
    """As in a checkpoint of before, or of a later version: the ledger is asked, as of any query."""
    kind = Delta(tmp_path)
    write_checkpoint(kind, 1, 1, **(sink or {"format": "none"}))
    with pytest.raises(AttributeError):  # of the cluster, which this test has none of
        asked(kind)


def test_no_other_command_looks_for_a_ledger(kind) -> None:
    """Nothing is dropped."""
    commit(kind, *map(batch, range(3)))
    write_checkpoint(kind, 2, 1)
    with pytest.raises(EosError, match=r"EOS_DROP_REFUSED.*writes to a table"):
        drop_planned(str(location(kind)), HadoopSettings(), CLUSTER, yes=True)


def test_the_table_is_named_without_secrets(kind) -> None:
    """By all starts in the same way."""
    sink = kind.sink() | ({"catalog.password": "hidden"} if isinstance(kind, Iceberg) else {"fs.s3a.secret.key": "h"})
    assert {*table_options(sink, {}).mark} <= {"format", "path", "table", "catalog"}
