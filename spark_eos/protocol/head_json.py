"""A head as the ledger's records hold it: compact JSON, readable by every later version of the library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from enum import Enum
from typing import Any, TypeVar

from spark_eos._version import __version__
from spark_eos.errors import LedgerError
from spark_eos.kafka.partitioners import CONSISTENT_RANDOM, PARTITIONERS
from spark_eos.kafka.transactions import FENCING_END, PLAIN_END
from spark_eos.protocol.head import Decision, Digest, Head, Job, Pair, Probe, Verdict, Written
from spark_eos.protocol.marks import Marks, marks_of
from spark_eos.protocol.notes import Noted
from spark_eos.protocol.ranges import from_json, to_json

#: To be raised when those who know only this format would misunderstand a head; the formats before stay readable.
#:
#: Format 1 did not say how rows are digested and dealt to partitions, nor the version of EndTxn of each transaction:
#: there was one of each. What a later version adds to a head may be ignored. What it adds to a decision, a replay has
#: to repeat: a field, or a value, that is not known stops the query. Format 3 is for heads with marks that no start may
#: pass over (`spark_eos.protocol.marks`), format 4 for those with the mark of missing rows; the others are written as
#: format 2.
FORMAT = 4

_FIRST_FORMAT, _WITHOUT_HALTS, _WITHOUT_MISSING = 1, 2, 3

#: A head says where transactions begin up to so many places in all: 12 kB or so, of the megabyte that a record has.
_MOST_BEGINS = 1_000

_KNOWN_ENDS = frozenset([PLAIN_END, FENCING_END])

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
            "format": _format_of(head.marks),
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
            **({} if head.committed_as is None else {"committed_as": head.committed_as}),
            **_if_true("closed_by_operator", head.closed_by_operator),
            **({} if decision is None else _if_any("dead_letters", [w.dead_letters for w in decision.written])),
            **({} if decision is None else _if_any("begins", _begins_to_json(decision))),
            **({} if decision is None else _if_any("lasts", _lasts_to_json(decision))),
            **({"topics": head.topics} if head.topics else {}),
            **_if_true("more_topics", head.more_topics),
            **head.marks.as_json(),
        },
        separators=(",", ":"),
        sort_keys=True,
    ).encode()


def decode(data: bytes) -> Head:
    """The inverse of encode, also for heads of the formats before. Raises LedgerError on anything else."""
    try:
        raw = json.loads(data)
        if raw["format"] not in (_FIRST_FORMAT, _WITHOUT_HALTS, _WITHOUT_MISSING, FORMAT):
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
            committed_as=tuple(raw["committed_as"]) if "committed_as" in raw else None,
            closed_by_operator=raw.get("closed_by_operator", False),
            topics=tuple(raw.get("topics", ())),
            more_topics=raw.get("more_topics", False),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(
            "EOS_LEDGER_DAMAGED",
            f"The ledger holds a head that cannot be read ({type(error).__name__}: {error}).",
            hint="Something else has written to the ledger topic; give spark-eos a topic of its own by 'ledger.topic'.",
        ) from None


def _format_of(marks: Marks) -> int:
    """The lowest whose readers do not misunderstand a head with these marks."""
    if marks.missing is not None:
        return FORMAT
    return _WITHOUT_MISSING if marks.halts else _WITHOUT_HALTS


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


def _begins_to_json(decision: Decision) -> list[dict[str, dict[int, int]]]:
    """For each transaction: topic → partition → offset."""
    said: list[dict[str, dict[int, int]]] = []
    for begins in _noted_begins(decision):
        places: dict[str, dict[int, int]] = {}
        for probe in begins:
            places.setdefault(probe.topic, {})[probe.partition] = probe.offset
        said.append(places)
    return said


def _lasts_to_json(decision: Decision) -> list[list[int]]:
    """For each transaction: the sequence number of its last record in each of these partitions, in order; nothing where
    one is not known."""
    return [
        [last for last in lasts if last is not None] if None not in lasts else []
        for lasts in ([probe.last for probe in begins] for begins in _noted_begins(decision))
    ]


def _noted_begins(decision: Decision) -> list[list[Probe]]:
    """Of each transaction, in order. Nothing of those that are ended, or where it would be long."""
    open_ones = [() if w.verdict is not None else w.begins for w in decision.written]
    if sum(map(len, open_ones)) > _MOST_BEGINS:
        return []
    return [sorted(begins, key=lambda probe: (probe.topic, probe.partition)) for begins in open_ones]


def _begins_from_json(places: Mapping[str, Mapping[str, int]], lasts: Sequence[int | None]) -> tuple[Probe, ...]:
    begins = sorted((topic, int(number), offset) for topic, found in places.items() for number, offset in found.items())
    return tuple(Probe(*begin, last) for begin, last in zip(begins, lasts or [None] * len(begins), strict=True))


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
    nothing = [()] * len(found.written)
    begins = map(_begins_from_json, raw.get("begins", [{}] * len(found.written)), raw.get("lasts", nothing))
    written = zip(found.written, letters, begins, strict=True)
    return replace(found, written=tuple(replace(w, dead_letters=count, begins=places) for w, count, places in written))


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
