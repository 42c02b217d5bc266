"""`spark-eos verify` on a real broker: a clean history, and each fault planted alone by plain producers."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from spark_eos import cli
from spark_eos.errors import CommandError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.tools import verify as ops
from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.verify import IdPlace, bounds
from tests.support.judges.kafka_view import TIMEOUT, write
from tests.support.queries.transactions import LIFE_MS
from tests.support.waiting import wait_for

ROWS = [(n % 2, f"r{n}") for n in range(20)]


@dataclass(frozen=True)
class Copied:
    """An input topic with `ROWS`, two partitions; and an output topic."""

    cluster: DevCluster
    input: str
    output: str

    def put(self, rows: Iterable[tuple[int, str]], commit: bool | None = True) -> None:
        write(self.cluster.bootstrap_servers, self.output, rows, commit=commit)

    def ask(self, **what: object) -> ops.Report:
        kafka = KafkaProperties({"bootstrap.servers": self.cluster.bootstrap_servers})
        by_value = IdPlace.parse("value")
        asked = {"id": by_value, "output_id": by_value, "inputs": (self.input,), "outputs": (self.output,), **what}
        return ops.verify(ops.Comparison(kafka, **asked))

    def command(self, *more: str) -> int:
        servers = ["--bootstrap-servers", self.cluster.bootstrap_servers]
        return cli.main([*servers, "verify", "--input", self.input, "--output", self.output, *more])

    def set_group(self, *offsets: int) -> str:
        group = f"group-of-{self.input}"
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": group, "log_level": 0})
        places = [TopicPartition(self.input, p, offset) for p, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
        return group


@pytest.fixture
def copied(cluster: DevCluster, topic: Callable[..., str]) -> Copied:
    input_ = topic(2)
    write(cluster.bootstrap_servers, input_, ROWS)
    return Copied(cluster, input_, topic(2))


def test_clean_history(copied: Copied, tmp_path, capsys) -> None:
    """Transactions, aborted ones among them, on both sides: nothing is wrong, and what was aborted is counted."""
    write(copied.cluster.bootstrap_servers, copied.input, [(0, "never"), (1, "committed")], commit=False)
    write(copied.cluster.bootstrap_servers, copied.input, [(0, "late")], commit=True)
    copied.put(ROWS[:10])
    copied.put(ROWS[10:15], commit=False)
    copied.put([*ROWS[10:], (1, "late")])
    file = tmp_path / "report.json"
    assert copied.command("--id", "value", "--same-value", "--json", str(file)) == 0
    assert capsys.readouterr().out.endswith("\nOK: 21 rows got through exactly once\n")
    report = json.loads(file.read_text())
    assert report["ok"]
    assert report["examples"] == {}
    assert {name: count for name, count in report["counts"].items() if count} == {
        "input": 21,
        "input_uncommitted": 2,
        "output": 21,
        "output_uncommitted": 5,
        "pairs": 21,
    }


def test_rows_without_an_id_that_pass_unchanged(copied: Copied, topic) -> None:
    """As into a dead-letter topic: their values, or keys, stand for their ids. One that is missing is lost, or left
    out."""
    input_, output, dead_letters = topic(1), topic(1), topic(1)
    good, bad = [f'{{"id": {n}}}' for n in range(3)], ["no JSON", "{", "{", None]
    write(copied.cluster.bootstrap_servers, input_, [(0, value) for value in [*good, *bad]])
    write(copied.cluster.bootstrap_servers, output, [(0, value) for value in good])
    write(copied.cluster.bootstrap_servers, dead_letters, [(0, value) for value in bad])
    sides = {"inputs": (input_,), "id": IdPlace.parse("json:id"), "output_id": IdPlace.parse("json:id")}
    assert copied.ask(**sides, outputs=(output, dead_letters)).ok
    report = copied.ask(**sides, outputs=(output,))
    assert (report.faults, report.counts["lost"]) == (["lost"], 4)
    assert report.examples["lost"][0] == ops.Example(None, f"{input_}-0@3", None, "no id at json:id")
    assert copied.ask(**sides, outputs=(output,), allow_missing=True).ok


def test_no_row_of_the_output_has_an_id(copied: Copied, topic) -> None:
    """A wrong question, not 20 torn rows: what they look like. Names of fields and headers are told, values are not."""
    producer = Producer({"bootstrap.servers": copied.cluster.bootstrap_servers})
    output = topic(1)
    for _, id_ in ROWS:
        producer.produce(output, json.dumps({"order": {"no": id_}, "id": None}), headers=[("trace", "secret")])
    assert producer.flush(TIMEOUT) == 0
    with pytest.raises(CommandError) as raised:
        copied.ask(outputs=(output,), output_id=IdPlace.parse("json:id"))
    assert raised.value.condition == "EOS_VERIFY_IMPOSSIBLE"
    assert raised.value.message == (
        f"No row of the output ({output}) has an id at json:id (20 read). Of the 20 looked at, keys are null, "
        "values are JSON objects with the fields order.no and id (null), and headers are trace."
    )
    assert "--output-id" in raised.value.hint


def test_rows_are_due_below_the_offsets_of_a_group(copied: Copied) -> None:
    """Rows at or above them must not be in the output yet."""
    copied.put(ROWS[:12])
    report = copied.ask(group=copied.set_group(6, 6))
    assert (report.ok, report.counts["waiting"]) == (True, 8)
    assert copied.ask(group=copied.set_group(5, 7)).examples == {
        "lost": [ops.Example("r13", f"{copied.input}-1@6", None)],
        "early": [ops.Example("r10", f"{copied.input}-0@5", f"{copied.output}-0@5")],
    }


def test_what_an_open_transaction_has_is_a_warning(copied: Copied, view, monkeypatch) -> None:
    """Readers of the output are held back: what they see already is whole. A group's offsets in it do not count
    yet."""
    monkeypatch.setattr(bounds, "PATIENCE_S", 0.2)
    copied.put(ROWS)
    wait_for(lambda: not view.held(copied.output), "the markers of the rows")
    group = copied.set_group(10, 10)
    servers = copied.cluster.bootstrap_servers
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    life = {"transaction.timeout.ms": LIFE_MS}
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"open-{group}", **life})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    producer.produce(copied.output, "r1", partition=1)
    producer.send_offsets_to_transaction(
        [TopicPartition(copied.input, 0, 11)], consumer.consumer_group_metadata(), TIMEOUT
    )
    assert producer.flush(TIMEOUT) == 0
    report = copied.ask(group=group)
    producer.abort_transaction(TIMEOUT)
    consumer.close()
    assert (report.ok, report.counts["output_uncommitted"]) == (True, 1)
    newer, held = report.warnings
    assert newer.startswith(f"an open transaction holds newer offsets of the group {group}")
    assert held == f"an open transaction holds {copied.output}-1 back: readers get to 11 of 12"


def test_a_compacted_topic_is_a_warning(copied: Copied, topic) -> None:
    """Rows that it has no longer may not be lost."""
    output = topic(1, cleanup_policy="compact,delete")
    producer = Producer({"bootstrap.servers": copied.cluster.bootstrap_servers})
    for _, id_ in ROWS:
        producer.produce(output, id_, key=id_)
    assert producer.flush(TIMEOUT) == 0
    assert copied.ask(outputs=(output,)).warnings == [
        f"{output} is compacted: rows that it has no longer count as lost"
    ]


def test_what_cannot_be_answered_has_a_name(copied: Copied, monkeypatch, tmp_path, capsys) -> None:
    """And exit code 2, which is no verdict: a topic that is missing, a group without offsets, such as a misspelt one,
    and no room on the disk."""

    def refused(says: str, *words: str) -> None:
        assert copied.command("--id", "value", *words) == 2
        assert re.search(says, capsys.readouterr().err)

    refused("EOS_TOPIC_MISSING.*not-there", "--output", "not-there")
    refused("EOS_VERIFY_IMPOSSIBLE.*no-such-group", "--group", "no-such-group")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no room"))
    refused("EOS_VERIFY_IMPOSSIBLE.*no room")


def test_answers_rightly_while_the_job_is_running(copied: Copied) -> None:
    """Nothing is lost or early at any moment, though rows, offsets and aborted copies keep coming."""
    group = copied.set_group(0, 0)
    stop = threading.Event()
    reports: list[ops.Report] = []
    with ThreadPoolExecutor() as pool:
        works = [pool.submit(copy_in_transactions, copied, group, stop), pool.submit(write_on, copied, stop)]
        try:
            wait_for(lambda: reports.append(copied.ask(group=group)) or progresses(reports), "a job that gets on")
        finally:
            stop.set()
        assert [work.result(TIMEOUT) for work in works] == [None, None]
    assert not any(report.faults for report in reports)


def progresses(reports: list[ops.Report]) -> bool:
    """Whether there were reports of three different moments of the job at least."""
    return len({report.counts["pairs"] for report in reports} - {0}) >= 3


def write_on(copied: Copied, stop: threading.Event) -> None:
    """Adds rows to the input until told to stop."""
    producer = Producer({"bootstrap.servers": copied.cluster.bootstrap_servers, "linger.ms": 1})
    for n in itertools.count(len(ROWS)):
        producer.produce(copied.input, f"r{n}", partition=n % 2)
        producer.poll(0.001)
        if stop.is_set():
            break
    producer.flush(TIMEOUT)


def copy_in_transactions(copied: Copied, group: str, stop: threading.Event) -> None:
    """A plain consume-transform-produce loop, exactly once: every third transaction is aborted and written again."""
    client = {"bootstrap.servers": copied.cluster.bootstrap_servers}
    consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False, "isolation.level": "read_committed"})
    producer = Producer({**client, "transactional.id": f"job-{copied.output}"})
    producer.init_transactions(TIMEOUT)
    consumer.assign([TopicPartition(copied.input, p, 0) for p in (0, 1)])
    for n in itertools.count():
        rows = consumer.consume(50, 0.05)
        for commit in [False, True] if n % 3 == 0 else [True]:
            if not rows:
                continue
            producer.begin_transaction()
            for row in rows:
                producer.produce(copied.output, row.value(), partition=row.partition())
            places = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(
                [place for place in places if place.offset >= 0], consumer.consumer_group_metadata(), TIMEOUT
            )
            producer.flush(TIMEOUT)
            (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT)
        if stop.is_set():
            break
    consumer.close()
