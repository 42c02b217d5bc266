"""Takes over a checkpoint that another sink has written until now: the ledger begins where its last micro-batch ended.

Nobody knows what the other sink has written of a micro-batch that is not committed, so that there must be none. Spark
writes down a micro-batch before its sink sees any of it; that is why this is checked before the query is started.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_eos.checkpoint import Checkpoint
from spark_eos.errors import CheckpointError, ReplayError, TopicError
from spark_eos.kafka.admin.configs import broker_config
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.checkpoint.heads import heads_of
from spark_eos.ops.checkpoint.logs import OTHER, Logs, check_known, merged, topic_twice
from spark_eos.protocol.commands import adopt as publish
from spark_eos.protocol.commands import overtaken
from spark_eos.protocol.head import Offsets
from spark_eos.sink.ledger_topic import ledger_partitions


@dataclass(frozen=True)
class Adoption:
    """What is taken over: the query, its last committed micro-batch, and where that ended, if all of its sources are
    Kafka's."""

    location: str
    query: str
    batch: int
    offsets: Offsets | None
    stateful: bool


def plan(checkpoint: Checkpoint, cluster: Cluster) -> Adoption:
    """Check that it can be taken over. Changes nothing. Raises EosError."""
    logs, query, where = Logs(checkpoint), checkpoint.query_id(), checkpoint.location
    if query is None or not logs.done:
        raise ReplayError(
            "EOS_ADOPT_NOTHING_DONE",
            f"{where} has no committed micro-batch.",
            hint="There is nothing to take over: begin with a new checkpoint, which reads from 'startingOffsets' "
            "on. If the path is right, start the old query once more, unchanged, with trigger(availableNow=True).",
        )
    check_known(logs)
    last = logs.done[-1]
    if not logs.planned or logs.planned[-1] != last:
        again = Logs(checkpoint)
        if (again.planned, again.done) != (logs.planned, logs.done):
            raise overtaken(f"the query in {where} is running")
        raise ReplayError(
            "EOS_ADOPT_UNDER_WAY",
            f"Micro-batch {logs.planned[-1] if logs.planned else last} of {where} is planned and not committed: what "
            "the old sink has written of it is unknown, and would be written again.",
            hint="Start the old query once more, unchanged, with trigger(availableNow=True): it finishes that "
            "micro-batch and ends by itself. If it was planned by a start of the new sink that stopped with "
            f"EOS_LEDGER_HEAD_MISSING, nothing of it was written: move offsets/{last + 1} and offsets/.{last + 1}.crc "
            "out of the checkpoint instead.",
            batch=last + 1,
        )
    if _is_known(cluster, query):
        raise ReplayError(
            "EOS_ADOPT_KNOWN",
            f"The ledger {cluster.ledger} knows the query of {where} already.",
            hint="Nothing needs to be done: start the query, and it continues from its checkpoint.",
        )
    sources = logs.sources(last)
    kafka = topic_twice(sources) is None and all(source.kind != OTHER for source in sources)
    return Adoption(where, query, last, merged(sources) if kafka else None, logs.stateful)


def _is_known(cluster: Cluster, query: str) -> bool:
    try:
        return bool(heads_of(cluster, query))
    except TopicError as error:
        if error.condition != "EOS_TOPIC_MISSING":
            raise
        return False  # there is no ledger yet


def adopt(checkpoint: Checkpoint, cluster: Cluster, group: str | None = None) -> Adoption:
    """Publish the query's first head; ``group`` is given the offsets. The ledger topic is made if there is none.

    Raises EosError.
    """
    adoption = plan(checkpoint, cluster)
    if group is not None and adoption.offsets is None:
        raise CheckpointError(
            "EOS_CHECKPOINT_WITHOUT_KAFKA",
            f"--group is {group}, but not all sources of the query in {checkpoint.location} are Kafka sources, or two "
            "of them read the same topic.",
            hint="Leave it out.",
        )
    ledger_partitions(cluster.kafka, cluster.ledger, broker_config(cluster.kafka))

    def check_files() -> None:
        logs = Logs(checkpoint)
        if [logs.planned[-1:], logs.done[-1:]] != [[adoption.batch]] * 2:
            raise overtaken(f"the query in {checkpoint.location} has gone on after micro-batch {adoption.batch}")

    prefix = cluster.prefix_of(adoption.query)
    ports = cluster.ports(adoption.query, group, prefix)
    publish(ports, adoption.batch, adoption.offsets, prefix, group, check_files)
    return adoption
