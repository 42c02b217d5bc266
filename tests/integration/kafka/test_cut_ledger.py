"""A ledger that loses its newest records on a real broker, as by an unclean election: its log's file is cut off."""

from __future__ import annotations

import itertools
import uuid
from pathlib import Path

import pytest

from spark_eos.errors import LedgerError
from spark_eos.kafka.admin.configs import create_topic
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.records.batches import walk_batches
from spark_eos.ledger import query as query_module
from spark_eos.ledger.log import KafkaLog
from spark_eos.ledger.query import LedgerAddress, query_ports
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import Head, Written
from spark_eos.protocol.names import TaskId, task_name
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import Ports, State
from spark_eos.protocol.task import MicroBatch, TaskReport, Work
from spark_eos.tools.devcluster import DevCluster
from tests.support.queries.transactions import LIFE_MS, Transaction
from tests.support.runs.case_cover import one_for_every_day
from tests.support.waiting import wait_for

PREFIX, LEDGER, OUT = "cut", "cut-ledger", "cut-out"
#: Of a record batch, in bytes.
_HEADER = 61
#: For so long a start looks whether the newest head turns up.
PATIENCE_S = 3.0


class Query:
    """A query on a cluster, each of whose steps is taken in a new process, as far as the ports go."""

    def __init__(self, cluster: DevCluster) -> None:
        self.id = str(uuid.uuid4())
        self.kafka = KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})
        client = broker_client(self.kafka)
        assert create_topic(client, LEDGER, 1, 1, {"cleanup.policy": "compact"}) == ""
        assert create_topic(client, OUT, 1, 1, {}) == ""

    def ports(self) -> Ports:
        return query_ports(broker_client(self.kafka), LedgerAddress(LEDGER, 1, PREFIX), self.id)

    def open(self, run: str, batch: int) -> Head:
        own = self.ports()
        return open_run(own, NewRun(run, batch, prefix=PREFIX))

    def decide(self, head: Head, batch: int) -> None:
        """A micro-batch of one row."""
        own = self.ports()
        coordinator = own.coordinator
        task = Transaction(self.kafka, OUT, task_name(PREFIX, self.id, TaskId(head.generation, 0, batch % 2)))
        probe = wait_for(lambda: coordinator.first_record(task.pair, [(OUT, 0)]), "the probe")
        written = Written(0, task.pair, 1, 1, probe, endtxn_version=coordinator.endtxn_version())
        report = TaskReport(Work.WRITE, 0, 1, 1, written, own.now_ms(), LIFE_MS)
        commit(own, MicroBatch(head.run, batch, (report,)))
        task.producer.close()
        wait_for(lambda: self.ports().coordinator.of_ledger().state is State.COMPLETE_COMMIT, "the ledger's markers")


def cut_off(folder: Path, offset: int) -> None:
    """Of the log of a broker that is dead, everything from this offset on."""
    (log,) = folder.glob("*.log")
    data = log.read_bytes()
    at = next(batch.start - _HEADER for batch in walk_batches(data, len(data), ()) if batch.base >= offset)
    log.write_bytes(data[:at])
    for kind in ("*index", "*.snapshot"):  # the broker makes them anew
        for file in folder.glob(kind):
            file.unlink()


@pytest.mark.parametrize(
    ("level", "is_lost"), one_for_every_day("a decision that is cut", [*itertools.product([1, 2], [True, False])])
)
def test_a_decision_that_the_ledger_has_lost(level: int, is_lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the second one of its run, whose driver died right after it: only the ledger's own id tells of it, at each
    start. A broker that was only killed has lost nothing."""
    with DevCluster(features={"transaction.version": level}) as cluster:
        query = Query(cluster)
        head = query.open("r1", 0)
        query.decide(head, 0)
        end = KafkaLog(broker_client(query.kafka), LEDGER).end(0)
        query.decide(head, 1)
        cluster.kill(0)
        folder = cluster.broker(0).data / f"{LEDGER}-0"
        if is_lost:
            cut_off(folder, end)
        cluster.start(0)
        if not is_lost:
            assert query.open("r2", 1).decision.batch == 1
            return
        monkeypatch.setattr(query_module, "SETTLE_S", PATIENCE_S)
        for run in ("r2", "r3"):
            with pytest.raises(LedgerError) as caught:
                query.open(run, 1)
            assert caught.value.condition == "EOS_LEDGER_TRUNCATED"
