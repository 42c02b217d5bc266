"""What the driver checks anew for each query, and what it goes on by for a while."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_eos.errors import EosError, OptionError
from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.head import Decision, Head
from spark_eos.sink import preflight as module
from spark_eos.sink.preflight import preflight, transaction_timeout

CLIENT = BrokerClient(KafkaProperties({"bootstrap.servers": "h:1"}))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the checks meet. ``asked``: whether they have asked for the cluster's settings, and by query, whether its
    predecessors have finished; ``opened``: where they have opened a checkpoint; ``head``: the one in the ledger."""
    state = SimpleNamespace(asked=[], opened=[], head=None)
    checkpoint = module.Checkpoint
    checks = ("check_output", "check_brokers", "check_dead_letters", "check_group", "_check_ids")
    fakes = {name: lambda *_, **__: 0 for name in checks} | {
        "Checkpoint": lambda location, *given: state.opened.append(location) or checkpoint(location, *given),
        "broker_config": lambda *_: state.asked.append("cluster"),
        "check_predecessors": lambda client, options, query: state.asked.append(query),
        "ledger_partitions": lambda *_: 8,
        "KafkaLedger": lambda *_: SimpleNamespace(read=lambda: state.head),
        "cluster_id": lambda _: "here",
        "describe_topics": lambda *_, **__: {"t": Topic("id", 1, internal=False)},
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(module, name, fake)
    return state


def options_at(checkpoint: object) -> SinkOptions:
    return SinkOptions(CLIENT.properties, topic="t", checkpoint_location=str(checkpoint))


def test_a_new_checkpoint_in_the_same_place_is_checked(answers: SimpleNamespace, tmp_path: Path):
    """However soon after the last start: by another query id. The cluster is as it was a moment ago."""
    for query in ("one", "one", "two", "two"):
        (tmp_path / "metadata").write_text(json.dumps({"id": query}))
        preflight(CLIENT, options_at(tmp_path))
    assert answers.asked == ["cluster", "one", "two"]


def test_a_store_that_cannot_be_read_is_tried_once_in_a_while(
    answers: SimpleNamespace, caplog: pytest.LogCaptureFixture
):
    """A micro-batch does not wait each time for what does not answer."""
    for _ in range(3):
        preflight(CLIENT, options_at("viewfs://odd/there/tried-once"))
    assert answers.asked == ["cluster"] and len(answers.opened) == 1
    assert [record for record in caplog.records if "The query continues" in record.getMessage()]


Check = Callable[..., str | None]


@pytest.fixture
def check(answers: SimpleNamespace, tmp_path: Path) -> Check:
    """``check(offsets, commits, head, begin)``: the entry of the error by which a query with offsets.group.id is
    refused, if any. ``offsets``: lines of the micro-batches from 0 on; ``commits``: of how many of them are in the
    commit log."""

    def entry(offsets: list[str], commits: int, head: Head | None, begin: int | None = None) -> str | None:
        answers.head = head
        (tmp_path / "metadata").write_text(json.dumps({"id": "query"}))
        for log, lines in (("offsets", offsets), ("commits", [""] * commits)):
            (tmp_path / log).mkdir()
            for batch, line in enumerate(lines):
                (tmp_path / log / str(batch)).write_text(f"v1\n{{}}\n{line}")
        try:
            preflight(CLIENT, replace(options_at(tmp_path), group_id="g", ledger_begin=begin))
        except EosError as error:
            return error.entry
        return None

    return entry


def head_of(offsets: str | None, batch: int = 0, driver: str = "") -> Head:
    """Of a query that has decided this micro-batch, and with it the group's offsets."""
    ends = None if offsets is None else json.loads(offsets)
    return Head("r", 1, (), 5, Decision.without_rows(batch, ends, DEFAULT_PARTITIONER, "g"), driver)


END, LATER = '{"t":{"0":5}}', '{"t":{"0":8}}'
HERE = '{"#cluster":{"id":"here"},"#ids":{"t":"id"},"t":{"0":5}}'
ANEW, THERE = HERE.replace('"t":"id"', '"t":"another"'), HERE.replace("here", "there")
UNNOTED = '{"#ids":{"t":"another"},"t":{"0":5}}'
OF_ANOTHER = "EOS_OPTION_CONFLICT.group_of_other_cluster"


@pytest.mark.parametrize(
    ("line", "known", "entry"),
    [
        (HERE, False, None),
        (THERE, False, OF_ANOTHER),
        (THERE, True, OF_ANOTHER),
        (UNNOTED, False, OF_ANOTHER),
        (UNNOTED, True, None),
        (UNNOTED.replace("another", "id"), False, None),
        (ANEW, True, None),
        ('{"#group":{"id":"g"},"t":{"0":5}}', False, "EOS_OPTION_CONFLICT.group_of_both"),
    ],
)
def test_a_group_that_does_not_get_the_offsets(check: Check, line: str, known: bool, entry: str | None):
    """Of another cluster's topic, which mean nothing here, whether the offset log notes clusters or not; but a topic
    that was created anew keeps its group. And a group of the source is a report of what is done."""
    assert check([END, line] if known else [line], known, head_of(None) if known else None) == entry


@pytest.mark.parametrize(
    ("offsets", "commits", "head", "begin", "entry"),
    [
        ([END, LATER], 1, head_of(END), None, None),
        ([END, LATER], 1, head_of(LATER), None, "EOS_CHECKPOINT_DAMAGED.file"),
        ([END], 1, head_of(END), None, "EOS_CHECKPOINT_DAMAGED.file"),
        ([END], 1, None, 1, "EOS_CHECKPOINT_DAMAGED.file"),
        ([END], 1, head_of(END, batch=1), None, None),
        ([END, LATER], 1, None, None, "EOS_LEDGER_HEAD_MISSING"),
        ([END, LATER], 1, None, 1, None),
    ],
    ids=["whole", "other offsets", "lost offsets", "lost with the ledger", "behind", "no head", "begun anew"],
)
def test_logs_of_a_checkpoint_fit_the_head(check: Check, offsets, commits, head, begin, entry):
    """Spark 4.1 plans lost offsets anew, and would go on behind them at the next start. What is behind the head is left
    to the first task, which says where that ended."""
    assert check(offsets, commits, head, begin) == entry


@pytest.mark.parametrize("driver", ["", "another application's"])
def test_a_beginning_that_is_still_set_is_told_in_a_later_application(check: Check, driver: str, caplog):
    """On the driver. The application that needs the option is not told."""
    assert check([END], 0, head_of(END, batch=5, driver=driver), 5) is None
    said = "query=query is in its ledger already: option 'ledger.begin' (5) has no effect any more, and can be removed."
    assert (said in caplog.messages) == bool(driver)


@pytest.mark.parametrize(
    ("most", "chosen", "timeout_ms"),
    [
        (900_000, None, 900_000),
        (900_000, 60_000, 60_000),
        (NEVER_MS, None, 900_000),
        (NEVER_MS, NEVER_MS - 1, NEVER_MS - 1),
        (NEVER_MS, NEVER_MS, None),
        (900_000, 900_001, None),
    ],
)
def test_a_transaction_expires(most: int, chosen: int | None, timeout_ms: int | None):
    """Unless two-phase commit is asked for: Kafka takes the longest timeout for that."""
    options = SinkOptions(CLIENT.properties, transaction_timeout_ms=chosen)
    broker = {"transaction.max.timeout.ms": str(most)}
    if timeout_ms is not None:
        assert transaction_timeout(options, broker) == timeout_ms
        return
    with pytest.raises(OptionError, match=f"'transaction.timeout.ms' is {chosen}"):
        transaction_timeout(options, broker)
    assert transaction_timeout(replace(options, two_phase=True), broker) == chosen
