"""Runs of queries that a program writes itself, one micro-batch after the other, without a stream of Spark's.

The program opens a run, writes micro-batches under it (`spark_eos.sink.job_write`), and may have own records that are
published with its decisions (`spark_eos.protocol.extra.FeatureRecords`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_eos.errors import ProtocolStop, stop
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.ledger.ledger import ledger_partition
from spark_eos.ledger.log import KafkaLog
from spark_eos.ledger.reader import LedgerReader
from spark_eos.ledger.record_forms import OwnTopic
from spark_eos.options.writes import WriteOptions
from spark_eos.protocol.head import Decision, ForeachBatchWrite
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.sink.ledger_topic import make_ledger
from spark_eos.sink.preflight import preflight
from spark_eos.sink.session import session_for


@dataclass(frozen=True)
class OwnRun:
    """An open run of a query. ``decision``: the query's last one, settled; None without one."""

    client: BrokerClient
    query: str
    decision: Decision | None

    def partition_of(self, topic: str) -> int:
        """Return the partition with this query's records in a topic of the program's own records. The topic is created
        if it is missing, and must be as durable as a ledger. Raises EosError."""
        count = make_ledger(self.client, topic, OwnTopic.NOTES)
        return ledger_partition(self.query, count)

    def records(self, topic: str, partition: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and value of each committed record of such a partition, up to its end. Raises as
        `LedgerReader.read`."""
        reader = LedgerReader(KafkaLog(self.client, topic), partition, self.query)
        rows = reader.rows(partition)
        return ((key, value) for _, key, value in rows if key is not None and value is not None)


def open_own_run(options: WriteOptions) -> OwnRun:
    """Open the run that the options name, and settle the query's last decision. Once it is open, no other run of the
    query can decide anything. Raises EosError."""
    sink, write, run = options.sink, options.write, options.run
    assert isinstance(write, ForeachBatchWrite) and run is not None
    client = broker_client(sink.kafka)
    facts = preflight(client, sink)
    session = session_for(client, sink, facts.ledger_partitions, write.query_id)
    for _ in session.ports.retrying():
        head = session.ports.ledger.read()
        new = NewRun(
            run,
            head.decision.batch if head is not None and head.decision is not None else 0,
            prefix=sink.prefix,
            partitioner=sink.partitioner or DEFAULT_PARTITIONER,
            two_phase=sink.two_phase,
            write=write,
            topic=sink.topic,
        )
        try:
            return OwnRun(client, write.query_id, open_run(session.ports, new).decision)
        except ProtocolStop as error:
            if error.condition != "EOS_CHECKPOINT_BEHIND":  # another run has decided since the read
                raise
    raise stop("EOS_LEDGER_BUSY")
