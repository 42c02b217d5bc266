"""Ids that the registry does not know, past the JVM: what a record became by that is what it is when it was lost and is
written again, whatever the registry knows by then."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_eos.pipelines.registry.decoding import Decoding
from spark_eos.pipelines.registry.wire import prefix
from tests.support.judges.kafka_view import KafkaView, write
from tests.support.kills.registry_records import KNOWN, LATER, LATER_SCHEMA, SCHEMA, SUBJECT, decoding
from tests.support.queries.copies import CopiedFrom
from tests.support.queries.sink_queries import ended_by
from tests.support.servers.fake_registry import FakeRegistry, fake_registry
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for


def texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows' names as values."""
    return pa.RecordBatch.from_pydict({"value": pc.struct_field(batch["value"], "row")})


class Setting:
    """A query between two topics, of two partitions each, and a topic of its dead letters."""

    def __init__(self, spark, view: KafkaView, topic, folder) -> None:
        self.view, self.folder, self.letters = view, folder, topic(max_message_bytes=2_000_000)
        self.query = CopiedFrom(spark, view, folder, topic(2), topic(2))
        self._ends = {"deadLetters__topic": self.letters}

    def feed(self, *records: tuple[int, str], partition: int = 0) -> None:
        rows = [(partition, prefix(id_) + json.dumps({"row": row}).encode()) for id_, row in records]
        write(self.view.bootstrap_servers, self.query.source, rows, commit=True)

    def reads(self, decoding: Decoding, **more: object) -> None:
        """From now on."""
        self.query.more = {"decode": {"value": decoding}, "on_malformed": "deadLetters", **more}

    def lose(self, when: str = "commit.decided=hold@2", folder: str = "faults") -> None:
        """Run, and lose every decided transaction of the micro-batch. ``folder``: another one for each time."""
        with armed(self.query.spark, when, self.folder / folder) as fault:
            started = self.query.start(texts, **self._ends)
            fault.wait()
            for name in self.view.open_transactions(started.id):
                self.view.end_transaction(name, commit=False)
            fault.release()
            ended_by(started, "EOS_TRANSACTION_LOST")

    def run(self) -> None:
        self.query.run(texts, **self._ends)

    def found(self) -> tuple[list[str], list[str]]:
        """The names of the rows, and of the dead letters."""
        wait_for(lambda: not self.view.held(self.query.target, self.letters), "the markers")
        letters = [json.loads(letter.value[5:])["row"] for letter in self.view.rows(self.letters)]
        return sorted(self.view.values(self.query.target)), sorted(letters)


@pytest.fixture
def setting(spark, view, topic, tmp_path) -> Iterator[Setting]:
    yield Setting(spark, view, topic, tmp_path)
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    """A registry that knows one id."""
    with fake_registry({KNOWN: SCHEMA}, {SUBJECT: KNOWN}) as running:
        yield running


def test_tasks_that_had_other_answers_are_repaired_by_their_own(setting, fake):
    """The id became known between their questions; one task writes again what two have lost, and loses it, too."""
    first = decoding(fake.url, **{"timeout.ms": "600000"})
    setting.reads(first, ordered=False)
    setting.query.reads = {"minPartitions": 2}
    fake.schemas[LATER] = LATER_SCHEMA
    fake.prompt[LATER], fake.late[LATER] = 1, 1  # the first question is that of the process which tries the sample
    for p in range(2):
        setting.feed(*((KNOWN, f"{p}.{n}") for n in range(100)), (LATER, f"later {p}"), partition=p)
    setting.lose()
    assert fake.asked[LATER] == 3
    setting.query.reads = {}
    setting.reads(decoding(fake.url, **{"timeout.ms": "90000"}))
    setting.lose("commit.decided=hold", "again")
    setting.reads(decoding(fake.url, **{"timeout.ms": "80000"}))
    setting.run()
    rows, letters = setting.found()
    assert len(rows) == 201 and len(letters) == 1
    assert {*rows, *letters} == {f"{p}.{n}" for p in range(2) for n in range(100)} | {"later 0", "later 1"}
