"""The first head of a query that another sink has brought so far."""

from __future__ import annotations

from collections.abc import Callable

from spark_eos.errors import ReplayError
from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.protocol.head import NOBODY, Decision, Head, Offsets
from spark_eos.protocol.newest import taking
from spark_eos.protocol.ports import NotPublished, Ports
from spark_eos.protocol.stops import ledger_busy


def adopt(
    ports: Ports,
    batch: int,
    offsets: Offsets | None,
    prefix: str,
    group: str | None,
    check_files: Callable[[], None] = lambda: None,
) -> Head:
    """Publish a head from which a start goes on after ``batch``, as if that had been decided here, without rows; the
    group is given its offsets. ``check_files`` raises where the checkpoint is not as it was judged; it is called when
    the ledger is taken.

    Raises ReplayError (EOS_LEDGER_BEGUN) where the query has another head by now, and Unclear.
    """
    done = Decision.without_rows(batch, offsets, DEFAULT_PARTITIONER, group)
    for term, head in taking(ports):
        if head is not None:
            if head.decision == done:
                return head
            raise ReplayError(
                "EOS_LEDGER_BEGUN",
                "The ledger knows the query already: it was started meanwhile.",
                hint="Nothing was changed. Go on with the query.",
            )
        check_files()
        new = Head(
            NOBODY,
            1 + ports.coordinator.generations(thorough=True).begun,
            (),
            ports.coordinator.endtxn_version(),
            decision=done,
            prefix=prefix,
            partitioner=DEFAULT_PARTITIONER,
        )
        try:
            term.publish(new, offsets if group is not None else None)
        except NotPublished:
            continue
        return new
    raise ledger_busy()
