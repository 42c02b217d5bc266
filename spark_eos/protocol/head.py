"""What the ledger holds: the head of a query, with its newest decision, and its text form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from spark_eos.errors import LedgerError

FORMAT = 1
"""To be raised when the meaning of a field changes; the way rows are digested (``spark_eos.sink.rows``) is one."""

EARLIER_RUNS = 32
"""How many earlier runs a head remembers. A zombie of a run older than that opens as a new one would: the living run
then stops as replaced, and no row is at stake."""

NOBODY = ""
"""The run of a head whose last run was closed after a failed micro-batch."""

Offsets = Mapping[str, Mapping[str, int]]
"""End offsets of a micro-batch, exclusive, as in Spark's offset log: topic → partition (as text) → offset."""


class Verdict(Enum):
    """What became of a decided transaction; final."""

    COMMITTED = "committed"
    LOST = "lost"


@dataclass(frozen=True)
class Pair:
    """A transactional id with one producer id and epoch: with one transaction to a pair, this names the transaction."""

    id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True)
class Probe:
    """One record of a transaction: where to look when nobody knows what became of it."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Written:
    """What one task put into its transaction. The digest does not depend on the order of rows."""

    partition: int
    pair: Pair
    rows: int
    digest: int
    probe: Probe
    verdict: Verdict | None = None


@dataclass(frozen=True)
class Decision:
    """A micro-batch whose fate is sealed: all of ``written`` is to be committed.

    ``rev`` counts its repairs. ``rows`` and ``digest`` are sums over all tasks, those without rows included in
    ``tasks``.
    """

    batch: int
    rev: int
    tasks: int
    rows: int
    digest: int
    offsets: Offsets | None
    written: tuple[Written, ...]

    @property
    def lost(self) -> tuple[Written, ...]:
        return tuple(w for w in self.written if w.verdict is Verdict.LOST)

    @property
    def pairs(self) -> frozenset[Pair]:
        return frozenset(w.pair for w in self.written)

    def judged(self, verdicts: Mapping[Pair, Verdict]) -> Decision:
        """The same decision with the verdicts written in."""
        return replace(self, written=tuple(replace(w, verdict=verdicts.get(w.pair, w.verdict)) for w in self.written))


@dataclass(frozen=True)
class Head:
    """The newest record of a query in the ledger.

    ``generation`` counts the runs. ``endtxn_version`` is the one version of EndTxn that is used for all of the
    query's transactions, as answers of different versions do not fit together. ``driver`` names the Spark application
    that the run belongs to. ``prefix`` is that of the transactional ids: runs under another one would not fence this.
    """

    run: str
    generation: int
    earlier: tuple[str, ...]
    endtxn_version: int
    decision: Decision | None = None
    driver: str = ""
    prefix: str = ""

    def succeeded_by(self, run: str, endtxn_version: int, driver: str = "") -> Head:
        """The head that a new run publishes: the same decision, the next generation."""
        earlier = self.earlier if self.run == NOBODY else (self.run, *self.earlier)[:EARLIER_RUNS]
        return replace(
            self,
            run=run,
            generation=self.generation + 1,
            earlier=earlier,
            endtxn_version=endtxn_version,
            driver=driver,
        )


def encode(head: Head) -> bytes:
    """The head as compact JSON; a transaction takes about 100 bytes."""
    decision = head.decision
    return json.dumps(
        {
            "format": FORMAT,
            "run": head.run,
            "generation": head.generation,
            "earlier": head.earlier,
            "endtxn": head.endtxn_version,
            "driver": head.driver,
            "prefix": head.prefix,
            "decision": None if decision is None else _decision_to_json(decision),
        },
        separators=(",", ":"),
        sort_keys=True,
    ).encode()


def decode(data: bytes) -> Head:
    """The inverse of encode. Raises LedgerError on anything else."""
    try:
        raw = json.loads(data)
        if raw["format"] != FORMAT:
            raise LedgerError(
                "EOS_LEDGER_FORMAT",
                f"The ledger holds a head of format {raw['format']}; this version of spark-eos knows format {FORMAT}.",
                hint="Run the query with the version that wrote it, or a newer one.",
            )
        return Head(
            run=raw["run"],
            generation=raw["generation"],
            earlier=tuple(raw["earlier"]),
            endtxn_version=raw["endtxn"],
            driver=raw["driver"],
            prefix=raw["prefix"],
            decision=None if raw["decision"] is None else _decision_from_json(raw["decision"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            "EOS_LEDGER_DAMAGED",
            f"The ledger holds a head that cannot be read ({type(error).__name__}: {error}).",
            hint="Something else has written to the ledger topic; give spark-eos a topic of its own by 'ledger.topic'.",
        ) from None


def _decision_to_json(decision: Decision) -> dict[str, Any]:
    return {
        "batch": decision.batch,
        "rev": decision.rev,
        "tasks": decision.tasks,
        "rows": decision.rows,
        "digest": decision.digest,
        "offsets": decision.offsets,
        "written": [
            [
                w.partition,
                [w.pair.id, w.pair.producer_id, w.pair.epoch],
                w.rows,
                w.digest,
                [w.probe.topic, w.probe.partition, w.probe.offset],
                w.verdict.value if w.verdict else None,
            ]
            for w in decision.written
        ],
    }


def _decision_from_json(raw: Mapping[str, Any]) -> Decision:
    return Decision(
        batch=raw["batch"],
        rev=raw["rev"],
        tasks=raw["tasks"],
        rows=raw["rows"],
        digest=raw["digest"],
        offsets=raw["offsets"],
        written=tuple(
            Written(partition, Pair(*pair), rows, digest, Probe(*probe), Verdict(verdict) if verdict else None)
            for partition, pair, rows, digest, probe, verdict in raw["written"]
        ),
    )
