"""What the ledger holds: the head of a query, with its newest decision, and its text form.

A head says all that its replay must repeat, so that a newer version of the library, installed between a crash and the
replay, repeats it. Every default below is what the first version of the library did, whose heads do not say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from spark_eos._version import __version__
from spark_eos.errors import LedgerError
from spark_eos.protocol.marks import NO_MARKS, Marks, marks_of
from spark_eos.protocol.notes import Noted
from spark_eos.protocol.ranges import Direct, Range, from_json, to_json

FORMAT = 3
"""To be raised when those who know only this format would misunderstand a head; the formats before stay readable.

Format 1 did not say how rows are digested and dealt to partitions, nor the version of EndTxn of each transaction: there
was one of each. What a later version adds to a head may be ignored. What it adds to a decision, a replay has to repeat:
a field, or a value, that is not known stops the query. Format 3 is for heads with marks that no start may pass over
(`spark_eos.protocol.marks`); the others are written as format 2.
"""

_FIRST_FORMAT, _WITHOUT_HALTS = 1, 2

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


class Digest(Enum):
    """How the rows of a micro-batch are digested (``spark_eos.sink.digests``): regardless of their order, or, last two,
    with their places in the source, for the direct way with a transform and without."""

    CRC32C = "crc32c"
    MIXED = "crc32c-mix64"
    ENCODED = "crc32c-mix64-headers"
    PLACED = "crc32c-mix64-places"
    COPIED = "copied"


DIGEST_BITS = 64
NEWEST_DIGEST = Digest.ENCODED
"""What new micro-batches are digested by."""

CONSISTENT_RANDOM = "consistent_random"
"""librdkafka's default, and that of queries which began before heads named a partitioner."""

MURMUR2_RANDOM = "murmur2_random"
PARTITIONERS = frozenset(
    [CONSISTENT_RANDOM, "consistent", "fnv1a", "fnv1a_random", "murmur2", MURMUR2_RANDOM, "random"]
)
"""How keys are dealt to partitions, in librdkafka's words."""

DEFAULT_PARTITIONER = MURMUR2_RANDOM
"""That of Java's clients, for queries that begin now and whose user has chosen none."""

FENCING_END = 5
"""The version of EndTxn that ends transactions where the cluster's transaction.version is 2: the epoch rises with the
end, so that nothing that comes late can belong to the pair."""

PLAIN_END = 4
"""The version where it is 0 or 1; brokers that speak only lower ones mean the same by them. The epoch stays, and what
comes late may open a transaction of the same pair once more."""

_KNOWN_ENDS = frozenset([PLAIN_END, FENCING_END])


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
    """What one task put into its transaction. The digest does not depend on the order of rows.

    ``endtxn_version`` is the one version of EndTxn that may end the transaction: answers of different versions do not
    fit together. It belongs to the pair, from its first batch to its end, whatever becomes of the cluster's
    transaction.version meanwhile.

    ``dead_letters``: how many of the rows are in the dead-letter topic. A replay may find other rows too large, so that
    this is only noted; ``rows`` and ``digest`` are of all rows, wherever they went. ``empty``: partitions, (topic,
    number), of the transaction without a row in them, as brokers refused all of those: it is never open there.
    ``ranges``: of the direct way, what the rows were read from.
    """

    partition: int
    pair: Pair
    rows: int
    digest: int
    probe: Probe
    verdict: Verdict | None = None
    endtxn_version: int = FENCING_END
    dead_letters: int = 0
    empty: tuple[tuple[str, int], ...] = ()
    ranges: tuple[Range, ...] = ()

    @property
    def end_fences(self) -> bool:
        return self.endtxn_version >= FENCING_END


@dataclass(frozen=True)
class Decision:
    """A micro-batch whose fate is sealed: all of ``written`` is to be committed.

    ``rev`` counts its repairs. ``rows`` and ``digest`` are sums over all tasks, those without rows included in
    ``tasks``. A replay digests by ``digest_by``, and deals keys to partitions by ``partitioner``. ``group`` is the
    consumer group that was given ``offsets``; None where there is none, or nobody has noted it. ``rewrite`` names the
    tasks that are to write the lost rows again, where they are not those that wrote them before. ``two_phase``: its
    transactions never expire. ``noted``: the notes of the query, those that were published with this decision included.
    ``direct``: rows were not Spark's, but read from these ranges by the tasks that wrote them; None where they were.
    """

    batch: int
    rev: int
    tasks: int
    rows: int
    digest: int
    offsets: Offsets | None
    written: tuple[Written, ...]
    digest_by: Digest = Digest.CRC32C
    partitioner: str = CONSISTENT_RANDOM
    group: str | None = None
    rewrite: tuple[int, ...] | None = None
    two_phase: bool = False
    noted: Noted | None = None
    direct: Direct | None = None

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
class Job:
    """A batch write: the id by which its user names it, the topic of all its rows (None: a column names it), and when
    its run began to write, by the clock of the task that opened it, in milliseconds."""

    id: str
    topic: str | None
    opened_ms: int


@dataclass(frozen=True)
class Head:
    """The newest record of a query in the ledger.

    ``generation`` counts the runs. ``endtxn_version`` is the version of EndTxn for transactions that began when the run
    did; each transaction of a decision has its own.
    ``driver`` names the Spark application that the run belongs to. ``prefix`` is that of the transactional ids: runs
    under another one would not fence this. ``partitioner`` is the one that the query began with and keeps, unless its
    user chooses another: a key whose rows are in one partition must not continue in another unasked. ``two_phase``:
    this run, or one before it, begins transactions that never expire. ``job``: the query is a batch write, of the one
    micro-batch 0; when all of that is committed, its decision has no transactions any more. ``given_up``: the
    micro-batch of which a write within foreachBatch failed. ``marks`` stay from run to run.
    """

    run: str
    generation: int
    earlier: tuple[str, ...]
    endtxn_version: int
    decision: Decision | None = None
    driver: str = ""
    prefix: str = ""
    partitioner: str = CONSISTENT_RANDOM
    two_phase: bool = False
    job: Job | None = None
    given_up: int | None = None
    marks: Marks = NO_MARKS

    @property
    def unwritten(self) -> int | None:
        """The micro-batch that was given up and has not been decided since."""
        if self.given_up is None or (self.decision is not None and self.decision.batch >= self.given_up):
            return None
        return self.given_up

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


_DECISION_FIELDS = frozenset(
    [
        *("batch", "rev", "tasks", "rows", "digest", "offsets", "written"),
        *("digest_by", "partitioner", "group", "rewrite", "two_phase", "empty", "noted", "direct"),
    ]
)


def encode(head: Head) -> bytes:
    """The head as compact JSON; a transaction takes about 100 bytes."""
    decision = head.decision
    partitioners = {head.partitioner} | ({decision.partitioner} if decision is not None else set())
    assert partitioners <= PARTITIONERS, partitioners  # nobody could read it
    return json.dumps(
        {
            "format": FORMAT if head.marks.halts else _WITHOUT_HALTS,
            "written_by": __version__,
            "run": head.run,
            "generation": head.generation,
            "earlier": head.earlier,
            "endtxn": head.endtxn_version,
            "driver": head.driver,
            "prefix": head.prefix,
            "partitioner": head.partitioner,
            "decision": None if decision is None else _decision_to_json(decision),
            **_if_true("two_phase", head.two_phase),
            **({} if head.job is None else {"job": asdict(head.job)}),
            **({} if head.given_up is None else {"given_up": head.given_up}),
            **({} if decision is None else _if_any("dead_letters", [w.dead_letters for w in decision.written])),
            **head.marks.as_json(),
        },
        separators=(",", ":"),
        sort_keys=True,
    ).encode()


def decode(data: bytes) -> Head:
    """The inverse of encode, also for heads of the formats before. Raises LedgerError on anything else."""
    try:
        raw = json.loads(data)
        if raw["format"] not in (_FIRST_FORMAT, _WITHOUT_HALTS, FORMAT):
            raise _unknown(raw, f"a head of format {raw['format']}", f"knows format {FORMAT} and those before")
        old = raw["format"] == _FIRST_FORMAT
        decision = raw["decision"]
        return Head(
            run=raw["run"],
            generation=raw["generation"],
            earlier=tuple(raw["earlier"]),
            endtxn_version=raw["endtxn"],
            driver=raw["driver"],
            prefix=raw["prefix"],
            partitioner=CONSISTENT_RANDOM if old else _partitioner(raw, raw["partitioner"]),
            decision=None if decision is None else _noted(raw, _completed(raw) if old else decision),
            two_phase=raw.get("two_phase", False),
            job=Job(raw["job"]["id"], raw["job"]["topic"], raw["job"]["opened_ms"]) if "job" in raw else None,
            given_up=raw.get("given_up"),
            marks=marks_of(raw),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
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
        "digest_by": decision.digest_by.value,
        "partitioner": decision.partitioner,
        "offsets": decision.offsets,
        "group": decision.group,
        "rewrite": decision.rewrite,
        **_if_true("two_phase", decision.two_phase),
        **_if_any("empty", [w.empty for w in decision.written]),
        **({} if decision.noted is None else {"noted": asdict(decision.noted)}),
        **_direct_to_json(decision),
        "written": [
            [
                w.partition,
                [w.pair.id, w.pair.producer_id, w.pair.epoch],
                w.rows,
                w.digest,
                [w.probe.topic, w.probe.partition, w.probe.offset],
                w.verdict.value if w.verdict else None,
                w.endtxn_version,
            ]
            for w in decision.written
        ],
    }


def _direct_to_json(decision: Decision) -> dict[str, Any]:
    if decision.direct is None:
        return {}
    return {"direct": to_json(decision.direct, [w.ranges for w in decision.written])}


def _if_true(name: str, value: bool) -> dict[str, bool]:
    """A field that is left out where it is false, so that versions that do not know it can read what does without."""
    return {name: True} if value else {}


def _if_any(name: str, values: Sequence[object]) -> dict[str, object]:
    """One for each transaction; left out where there are none."""
    return {name: values} if any(values) else {}


def _completed(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A decision of format 1, with what it did not say: what the library did that wrote it."""
    decision: dict[str, Any] = raw["decision"]
    written = [[*row, raw["endtxn"]] for row in decision["written"]]
    said = {"digest_by": Digest.CRC32C.value, "partitioner": CONSISTENT_RANDOM, "group": None, "rewrite": None}
    return decision | said | {"written": written}


def _noted(raw: Mapping[str, Any], decision: Mapping[str, Any]) -> Decision:
    """The decision, and what is noted of its transactions outside of it, as no replay depends on that."""
    found = _decision_from_json(raw, decision)
    letters = raw.get("dead_letters", [0] * len(found.written))
    written = zip(found.written, letters, strict=True)
    return replace(found, written=tuple(replace(w, dead_letters=count) for w, count in written))


def _decision_from_json(raw: Mapping[str, Any], decision: Mapping[str, Any]) -> Decision:
    added = decision.keys() - _DECISION_FIELDS
    if added:
        raise _unknown(raw, f"a decision with {', '.join(sorted(added))}", "does not know what that asks of a replay")
    written = [_written_from_json(raw, *row) for row in decision["written"]]
    empty = [
        tuple((topic, number) for topic, number in places) for places in decision.get("empty", [()] * len(written))
    ]
    nothing = (None, [()] * len(written))
    direct, ranges = from_json(decision["direct"]) if "direct" in decision else nothing
    return Decision(
        batch=decision["batch"],
        rev=decision["rev"],
        tasks=decision["tasks"],
        rows=decision["rows"],
        digest=decision["digest"],
        offsets=decision["offsets"],
        written=tuple(
            replace(w, empty=places, ranges=own) for w, places, own in zip(written, empty, ranges, strict=True)
        ),
        digest_by=_member(raw, Digest, decision["digest_by"], "digest"),
        partitioner=_partitioner(raw, decision["partitioner"]),
        group=decision["group"],
        rewrite=None if decision["rewrite"] is None else tuple(decision["rewrite"]),
        two_phase=decision.get("two_phase", False),
        noted=Noted(**decision["noted"]) if "noted" in decision else None,
        direct=direct,
    )


def _written_from_json(
    raw: Mapping[str, Any],
    partition: int,
    pair: list[Any],
    rows: int,
    digest: int,
    probe: list[Any],
    verdict: str | None,
    endtxn_version: int,
) -> Written:
    if endtxn_version not in _KNOWN_ENDS:
        what = f"a transaction to be ended by version {endtxn_version} of EndTxn"
        raise _unknown(raw, what, f"speaks versions {PLAIN_END} and {FENCING_END}")
    known = None if verdict is None else _member(raw, Verdict, verdict, "verdict")
    return Written(partition, Pair(*pair), rows, digest, Probe(*probe), known, endtxn_version)


_Kind = TypeVar("_Kind", bound=Enum)


def _member(raw: Mapping[str, Any], kind: type[_Kind], value: str, what: str) -> _Kind:
    try:
        return kind(value)
    except ValueError:
        raise _unknown(raw, f"a decision with the {what} '{value}'", "does not know it") from None


def _partitioner(raw: Mapping[str, Any], name: str) -> str:
    if name not in PARTITIONERS:
        raise _unknown(raw, f"the partitioner '{name}'", "does not know it")
    return name


def _unknown(raw: Mapping[str, Any], what: str, why: str) -> LedgerError:
    version = raw.get("written_by")
    wrote = f"spark-eos {version}, which wrote it" if version else "the version of spark-eos that wrote it"
    return LedgerError(
        "EOS_LEDGER_FORMAT",
        f"The ledger holds {what}; this version of spark-eos ({__version__}) {why}.",
        hint=f"Nothing is lost: install {wrote}, or a newer one, and start the query again.",
        written_by=version,
    )
