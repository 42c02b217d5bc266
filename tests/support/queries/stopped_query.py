"""A query that has stopped, without Spark: its ledger, what it has left open, and its checkpoint."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from spark_eos import cli
from spark_eos.kafka.admin.configs import create_topic
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.transactions import FENCING_END
from spark_eos.ledger.query import LedgerAddress, query_ports
from spark_eos.protocol.head import BatchWrite, Decision, Written
from spark_eos.protocol.names import TaskId, task_name
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import State
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.transactions import Transaction

RUN = "a run"
PREFIX = "ours"
#: Nothing moves, and what has just happened is no sign of a run.
AT_ONCE = ("--watch", "0", "--quiet", "0")


class Left:
    """A query that has stopped, under a ledger of its own, and what it has left open."""

    def __init__(self, cluster: DevCluster, view: KafkaView, topic: str, job: BatchWrite | None = None) -> None:
        self.topic, self.ledger, self.query = topic, f"ledger-{uuid.uuid4()}", str(uuid.uuid4())
        self.servers, self.view = cluster.bootstrap_servers, view
        self.kafka = KafkaProperties({"bootstrap.servers": self.servers})
        client = broker_client(self.kafka)
        assert create_topic(client, self.ledger, 1, 1, {"cleanup.policy": "compact"}) == ""
        self.ports = query_ports(client, LedgerAddress(self.ledger, 1, PREFIX), self.query)
        self.coordinator = self.ports.coordinator
        self.head = open_run(self.ports, NewRun(RUN, 0, prefix=PREFIX, write=job))
        self.opened: list[Transaction] = []
        view.wait_for_markers(self.query)

    def prepare(self, partition: int) -> Transaction:
        """One row, in a task's open transaction of micro-batch 0."""
        name = task_name(PREFIX, self.query, TaskId(self.head.generation, partition, 0))
        self.opened.append(Transaction(self.kafka, self.topic, name))
        return self.opened[-1]

    def decide(self, *prepared: Transaction) -> None:
        """Publish that these are to be committed, and no more. Until its markers are written, the ledger's transaction
        is open, too."""
        term = self.ports.ledger.take()
        term.publish(replace(self.head, decision=self.decision(*prepared)))
        self.view.wait_for_markers(self.query)

    def decision(self, *prepared: Transaction) -> Decision:
        described = self.coordinator.describe([t.pair.id for t in prepared])
        probes = [self.coordinator.first_record(t.pair, described[t.pair.id].places) for t in prepared]
        written = tuple(Written(i, t.pair, 1, 0, p) for i, (t, p) in enumerate(zip(prepared, probes, strict=True)) if p)
        assert len(written) == len(prepared)
        return Decision(0, 0, len(written), len(written), 0, None, written)

    def state(self, transaction: Transaction) -> State:
        return self.coordinator.describe([transaction.pair.id])[transaction.pair.id].state

    def status(self, *more: str, query: str | None = None) -> int:
        """`spark-eos status`; what has just happened is no sign of a run."""
        return self.ask("status", "--query", query or self.query, *AT_ONCE, *more)

    def recover(self, *more: str) -> int:
        """`spark-eos recover` by the query's id."""
        return self.ask("recover", "--query", self.query, *AT_ONCE, *more)

    def checkpoint(self, folder: Path) -> Path:
        """What Spark has of the query: micro-batch 0 is planned, and not committed."""
        offsets = {self.topic: {"0": 0}, "#ids": {}}
        files = {
            "metadata": json.dumps({"id": self.query}),
            "offsets/0": "\n".join(["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps(offsets)]),
        }
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return folder

    def ask(self, *words: str) -> int:
        """Any command about this ledger, unless the words name another one."""
        common = ["--bootstrap-servers", self.servers]
        common += [] if "--ledger-topic" in words else ["--ledger-topic", self.ledger]
        return cli.main([*common, *words])


@contextmanager
def left_open(cluster: DevCluster, view: KafkaView, topic: str, job: BatchWrite | None = None) -> Iterator[Left]:
    """A query, and in the end nothing of it open."""
    left = Left(cluster, view, topic, job)
    yield left
    for transaction in left.opened:
        transaction.producer.close()
    left.coordinator.end({t.pair: FENCING_END for t in left.opened}, commit=False)
