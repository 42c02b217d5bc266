"""`spark-eos dead-letters` on a real broker: what is counted and shown, and that a letter is sent again once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_eos import cli
from spark_eos.ops import dead_letters
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.source_calls import anew, delete_before
from tests.support.runs.case_cover import one_for_every_day
from tests.support.waiting import PROGRAM_S, TIMEOUT, wait_for

TOO_LARGE, MALFORMED = "RecordTooLargeException", "EOS_JOB_MALFORMED_ROW"


def refused_by(topic: str, partition: int = 0) -> list[tuple[str, bytes]]:
    """The headers of a row that brokers refused."""
    return [
        ("mine", b"kept"),
        ("__streams.errors.exception", f"org.apache.kafka.common.errors.{TOO_LARGE}".encode()),
        ("__streams.errors.message", b"Partition 0 of topic out refuses it"),
        ("__spark_eos.target.topic", topic.encode()),
        ("__spark_eos.target.partition", b"%d" % partition),
    ]


def malformed_in(topic: str, partition: int = 0) -> list[tuple[str, bytes]]:
    """The headers of input that did not parse."""
    return [
        ("__streams.errors.exception", MALFORMED.encode()),
        ("__streams.errors.topic", topic.encode()),
        ("__streams.errors.partition", b"%d" % partition),
        ("__streams.errors.offset", b"5"),
    ]


@dataclass
class Office:
    """A dead-letter topic of two partitions, and the topics that its letters belong to."""

    cluster: DevCluster
    view: KafkaView
    topic: str
    out: str
    source: str
    capsys: Any

    def post(self, write: Callable[..., None], count: int = 6) -> None:
        """So many letters of each kind, in both partitions, in turn."""
        for n in range(count):
            partition = n % 2
            write(self.topic, b"large-%d" % n, partition=partition, key=b"k", headers=refused_by(self.out, partition))
            write(self.topic, b"bad-%d" % n, partition=partition, key=b"k", headers=malformed_in(self.source))

    def ask(self, *words: str, json_: bool = True) -> tuple[int, Any]:
        self.capsys.readouterr()
        servers = ["--bootstrap-servers", self.cluster.bootstrap_servers]
        code = cli.main([*servers, "dead-letters", *words, *(["--format", "json"] if json_ else [])])
        out = self.capsys.readouterr().out
        return code, json.loads(out) if json_ else out

    def resend(self, *words: str) -> dict[str, int]:
        """How many letters went to each topic."""
        code, answer = self.ask("resend", self.topic, "--yes", *words)
        assert (code, answer["done"]) == (0, True), answer
        return {row["topic"]: row["letters"] for row in answer["letters"]}

    def values(self, topic: str) -> list[str]:
        """What a read_committed consumer sees, when the markers are written."""
        wait_for(lambda: not self.view.held(topic, self.topic), "the markers")
        return sorted(row.value.decode() for row in self.view.rows(topic))


@pytest.fixture
def office(cluster, view, topic, capsys) -> Office:
    return Office(cluster, view, topic(2), topic(2), topic(1), capsys)


def test_letters_are_counted_and_shown_by_their_reasons(office, write):
    """As JSON and as text; a reason picks its own."""
    office.post(write, 3)
    code, rows = office.ask("list", office.topic)
    assert code == 0
    assert [(row["reason"], row["topic"], row["letters"], row["sent_again"]) for row in rows] == [
        (MALFORMED, office.source, 3, 0),
        (TOO_LARGE, office.out, 3, 0),
    ]
    _, rows = office.ask("show", office.topic, "--reason", TOO_LARGE, "--limit", "2")
    assert [(row["partition"], row["offset"], row["value"]) for row in rows] == [(0, 0, "large-0"), (0, 2, "large-2")]
    assert ["mine", "kept"] in rows[0]["headers"]
    for words, line in (
        ("list", "reason topic letters sent again first last"),
        ("show", "__streams.errors.exception: org.apache.kafka.common.errors.RecordTooLargeException"),
    ):
        _, text = office.ask(words, office.topic, json_=False)
        assert line in [" ".join(each.split()) for each in text.splitlines()]


def test_letters_go_where_they_belong_and_a_second_time_nothing_does(office, write):
    """To topic and partition, as the records that they were, or elsewhere if asked; those of a reason, and later the
    ones between them. Without --yes nothing is sent."""
    office.post(write)
    code, answer = office.ask("resend", office.topic)
    assert (code, answer["done"]) == (0, False)
    assert answer["letters"] == [{"topic": topic, "letters": 6} for topic in sorted([office.out, office.source])]
    assert office.values(office.out) == office.values(office.source) == []
    assert office.resend("--reason", MALFORMED, "--to", office.out) == {office.out: 6}
    assert office.resend("--reason", MALFORMED) == {}
    assert office.resend() == {office.out: 6}
    assert office.values(office.out) == [f"{what}-{n}" for what in ("bad", "large") for n in range(6)]
    assert office.values(office.source) == []
    for row in office.view.rows(office.out):
        if row.value.startswith(b"large"):
            assert (row.partition, row.key, row.headers) == (int(row.value[-1:]) % 2, b"k", (("mine", b"kept"),))
        else:
            assert not row.headers
    assert office.resend() == {}
    assert len(office.values(office.out)) == 12
    _, rows = office.ask("list", office.topic)
    assert [(row["letters"], row["sent_again"]) for row in rows] == [(6, 6), (6, 6)]
    assert office.ask("show", office.topic)[1] == []
    write(office.topic, b"new", partition=1, headers=refused_by(office.out))
    assert office.resend() == {office.out: 1}


@pytest.mark.parametrize(
    ("headers", "entry"),
    [
        (lambda office: malformed_in(office.source, 7), "EOS_LETTER_UNSENDABLE.to"),
        (
            lambda office: [*malformed_in(office.source), ("__spark_eos.source.cluster", b"elsewhere")],
            "EOS_LETTER_UNSENDABLE.cluster",
        ),
        (lambda _: malformed_in("nowhere"), "EOS_TOPIC_MISSING"),
        (lambda _: malformed_in("__consumer_offsets"), "EOS_TOPIC_RESERVED"),
    ],
    ids=["partition", "cluster", "missing", "reserved"],
)
def test_a_letter_that_cannot_go_where_it_belongs(office, write, headers, entry):
    """Nothing is sent, no topic is created, and the error says what to do; elsewhere it can be sent."""
    write(office.topic, b"bad", headers=headers(office))
    for words in ((), ("--yes",)):
        code, answer = office.ask("resend", office.topic, *words)
        assert code != 0 and entry.partition(".")[0] in str(answer), answer
    assert "nowhere" not in office.view.admin.list_topics().topics
    assert office.resend("--to", office.out) == {office.out: 1}
    assert office.values(office.out) == ["bad"]


#: Ends as by kill -9 at a step of the transaction of the second four letters; what it has produced is in the log.
DYING = """
import os, sys
from confluent_kafka import Producer
from spark_eos import cli
from spark_eos.ops import dead_letters

class Dying(Producer):
    begun = 0

    def reach(self, step):
        if (self.begun, step) == (2, {step!r}):
            self.flush(60)
            os._exit(9)

    def begin_transaction(self):
        super().begin_transaction()
        self.begun += 1
        self.reach("begun")

    def produce(self, topic, **record):
        super().produce(topic, **record)
        self.reach("receipt" if topic == {topic!r} else "letter")

    def commit_transaction(self, *arguments):
        self.reach("ready")
        super().commit_transaction(*arguments)
        self.reach("committed")

dead_letters.Producer, dead_letters._AT_ONCE = Dying, 4
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "step", one_for_every_day("letters of a run that is killed", ["begun", "letter", "receipt", "ready", "committed"])
)
def test_a_run_that_is_killed_loses_and_doubles_no_letter(office, write, step):
    """The next run fences it, and sends just what is left."""
    office.post(write)
    words = ["--bootstrap-servers", office.cluster.bootstrap_servers, "dead-letters", "resend", office.topic, "--yes"]
    program = DYING.format(step=step, topic=office.topic)
    killed = subprocess.run([sys.executable, "-c", program, *words], timeout=PROGRAM_S)
    assert killed.returncode == 9
    assert sum(office.resend().values()) == (4 if step == "committed" else 8)
    assert office.values(office.out) == [f"large-{n}" for n in range(6)]
    assert office.values(office.source) == [f"bad-{n}" for n in range(6)]


@pytest.fixture
def sending_by(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[None]]:
    """``with sending_by(producer, silence_s=…):`` letters are sent by a producer of this class, and an open transaction
    is waited for as long as that."""

    @contextmanager
    def sending(producer: type[Producer], silence_s: float = TIMEOUT) -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(dead_letters, "Producer", producer)
            patch.setattr(dead_letters, "_SILENCE_S", silence_s)
            yield

    return sending


def test_a_run_that_was_fenced_sends_nothing_more(office, write, sending_by):
    """Two at once: the later one goes on, the earlier one fails, and each letter is there once."""
    office.post(write)
    waiting: list[dict[str, int]] = []

    class Overtaken(Producer):
        def commit_transaction(self, *arguments):
            if not waiting:
                waiting.append({})
                waiting[0] = office.resend()
            super().commit_transaction(*arguments)

    with sending_by(Overtaken):
        code, answer = office.ask("resend", office.topic, "--yes")
    assert (code, answer["error"]["condition"]) == (2, "EOS_LETTERS_FAILED")
    assert waiting == [{office.out: 6, office.source: 6}]
    assert len(office.values(office.out)) == len(office.values(office.source)) == 6


def test_a_letter_that_is_refused_again_sends_none_of_its_transaction(office, write, topic):
    """And is sent as soon as its topic takes it."""
    strict = topic(1, cleanup_policy="compact")
    write(office.topic, b"good", headers=refused_by(office.out))
    write(office.topic, b"keyless", headers=refused_by(strict))
    code, answer = office.ask("resend", office.topic, "--yes")
    assert (code, answer["error"]["condition"]) == (2, "EOS_LETTERS_FAILED")
    assert "INVALID_RECORD" in answer["error"]["message"]
    assert office.values(office.out) == []
    assert office.resend("--to", office.source) == {office.source: 2}


def test_receipts_behind_an_open_transaction_are_waited_for(office, write, transactions, sending_by):
    """Somebody's transaction in the dead-letter topic hides them: a run that cannot see them sends nothing."""
    office.post(write, 2)
    transactions.producer.begin_transaction()
    transactions.put(office.topic, b"late", partition=0)

    class Patient(Producer):
        def init_transactions(self, *_):
            super().init_transactions(TIMEOUT)

    with sending_by(Patient, silence_s=2.0):
        code, answer = office.ask("resend", office.topic, "--yes")
    assert (code, answer["error"]["condition"]) == (2, "EOS_LETTERS_FAILED")
    assert f"{office.topic}-0" in answer["error"]["message"]
    assert office.view.rows(office.out) == []
    transactions.producer.abort_transaction(TIMEOUT)
    assert office.resend() == {office.out: 2, office.source: 2}


def test_a_topic_that_is_created_again_while_its_letters_are_sent(office, write, sending_by):
    """Nothing of that transaction is visible, and no receipt is in the new topic."""
    office.post(write)

    class Recreating(Producer):
        def begin_transaction(self):
            super().begin_transaction()
            anew(office.view.admin, office.cluster, office.topic, 2)

    with sending_by(Recreating, silence_s=10.0):  # so long the end of that transaction is waited for
        code, answer = office.ask("resend", office.topic, "--yes")
    assert (code, answer["error"]["condition"]) == (2, "EOS_LETTERS_FAILED")
    assert office.values(office.out) == office.values(office.source) == []
    assert office.resend() == {}


def test_letters_that_were_deleted_are_gone_and_the_others_are_sent_once(office, admin):
    """As retention or kafka-delete-records take them, within a record batch, too."""
    with Producer({"bootstrap.servers": office.cluster.bootstrap_servers, "linger.ms": 1000}) as batches:
        for n in range(6):
            batches.produce(office.topic, b"large-%d" % n, partition=0, headers=refused_by(office.out))
            batches.produce(office.topic, b"bad-%d" % n, partition=0, headers=malformed_in(office.source))
    assert office.resend("--reason", TOO_LARGE) == {office.out: 6}
    delete_before(admin, office.topic, 5)
    _, rows = office.ask("list", office.topic)
    assert [(row["letters"], row["sent_again"]) for row in rows] == [(4, 0), (3, 3)]
    assert office.resend() == {office.source: 4}
    assert office.values(office.source) == [f"bad-{n}" for n in range(2, 6)]
    assert len(office.values(office.out)) == 6


def test_what_cannot_be_sent_is_named(office, write, topic):
    """A record that is no letter of ours, the dead-letter topic itself, and one that is not there."""
    write(office.topic, b"stray")
    code, answer = office.ask("resend", office.topic, "--yes")
    assert (code, answer["error"]["condition"]) == (2, "EOS_LETTER_UNSENDABLE")
    assert f"offset 0 of {office.topic}-0" in answer["error"]["message"]
    assert office.ask("resend", office.topic, "--to", office.topic)[1]["error"]["condition"] == "EOS_LETTER_UNSENDABLE"
    assert office.ask("list", "no-such-topic")[1]["error"]["condition"] == "EOS_TOPIC_MISSING"
    assert office.resend("--to", office.out) == {office.out: 1}


def test_a_letter_is_not_sent_to_a_topic_that_would_delete_it(office, write, topic, monkeypatch):
    """Of 20 days ago, by its timestamp. Nothing is sent, not even letters before it, and the setting is named."""
    monkeypatch.setattr(dead_letters, "_AT_ONCE", 1)
    day_ms = 24 * 3600 * 1000
    into, then = topic(1, retention_ms=7 * day_ms), int(time.time() * 1000) - 20 * day_ms
    write(office.topic, b"new", headers=refused_by(office.out))
    write(office.topic, b"old", key=b"k", headers=refused_by(into), timestamp=then)
    for words in ((), ("--yes",)):
        code, answer = office.ask("resend", office.topic, *words)
        assert (code, answer["error"]["condition"]) == (2, "EOS_LETTER_UNSENDABLE")
        assert "retention.ms" in answer["error"]["message"] and into in answer["error"]["message"]
    assert office.view.rows(office.out, into) == []
    assert office.resend("--to", office.out) == {office.out: 2}
