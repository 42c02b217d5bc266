"""A ledger that has lost its newest head, looked at while a broker is away: what that one knows must be asked for."""

from __future__ import annotations

import pytest

from spark_eos.errors import LedgerError
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.query import LedgerAddress, query_ports
from spark_eos.protocol.names import ledger_name
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.take import take

from .faults import Schedule
from .play import Stage, staged
from .query import QUERY, Progress, forget, start

#: Of this micro-batch only the second task has rows, so that one coordinator alone knows of the run that writes it.
ONE_TASK = 3
AWAY_S = 10.0


def ports_of(stage: Stage) -> Ports:
    scene = stage.scene
    return query_ports(broker_client(scene.kafka), LedgerAddress(scene.ledger, 2, scene.prefix), QUERY, None)


def lost_head(stage: Stage) -> str:
    """Two runs, of which the ledger has lost the second one. Returns the only id that this one has used."""
    progress = Progress(ONE_TASK)
    start(stage.scene, progress)
    logs = [stage.cluster.partitions[stage.scene.ledger, p] for p in range(2)]
    kept = [len(log.batches) for log in logs]
    before = set(stage.cluster.transactions.entries)
    progress.batches += 1
    start(stage.scene, progress)
    assert progress.done == ONE_TASK + 1 and progress.stops == []
    stage.world.sleep(1.0)
    for log, count in zip(logs, kept, strict=True):
        del log.batches[count:]
    # The last thing under the ledger's own id was in vain, so that the id itself does not show it.
    stage.cluster.transactions.entries[ledger_name(stage.scene.prefix, QUERY)].state = "CompleteAbort"
    forget()
    entries = stage.cluster.transactions.entries
    without_rows = [name for name in set(entries) - before if not entries[name].begun]
    for name in without_rows:  # of the first task, as if it had expired
        del entries[name]
    (name,) = set(entries) - before
    return name


def test_a_broker_that_is_away_does_not_hide_it() -> None:
    """The coordinator of the run that is lost is away for a while: nothing is concluded before it has answered."""
    with staged(Schedule(1)) as stage:
        name = lost_head(stage)
        ports = ports_of(stage)
        head = ports.ledger.read()
        assert head is not None and head.generation == 1
        away = stage.cluster.coordinator(name)
        assert away != stage.cluster.coordinator(ledger_name(stage.scene.prefix, QUERY))
        stage.cluster.nodes[away].unplug(AWAY_S)
        broker_client(stage.scene.kafka).feature("transaction.version")  # as a start does: what is known is forgotten
        with pytest.raises(LedgerError):
            take(ports, head)
