"""A head as the ledger's records hold it: compact JSON, readable by every later version of the library.

Heads and decisions are objects with a name for each field of their class. Only fields that JSON has no type for, or
that are left out of long heads, are written in another way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from enum import Enum
from typing import Any, TypeVar

from spark_eos._version import __version__
from spark_eos.errors import EosError, stop
from spark_eos.kafka.partitioners import PARTITIONERS
from spark_eos.kafka.transactions import FENCING_END, PLAIN_END
from spark_eos.protocol.head import (
    BatchWrite,
    Decision,
    Digest,
    Extra,
    ForeachBatchWrite,
    Head,
    Marks,
    Missing,
    Pair,
    Probe,
    Successor,
    TransactionStart,
    TransactionStarts,
    Unfinished,
    Verdict,
    Write,
    Written,
)

#: To be raised when a version that knows only this format would misunderstand a head. A field that a later version adds
#: to a head is ignored. A field, or a value, that it adds to a decision is one that a replay has to repeat, so that it
#: stops the query where it is not known; so does any other addition within a field.
FORMAT = 1


#: Most first offsets of transactions in a head, for all partitions: some 15 kB, of the megabyte that a record has.
_MOST_BEGINS = 1_000


#: Most unverified starts of earlier decisions in a head: with a transaction of its own for each, 500 kB before it is
#: compressed. The oldest are named first, as they have been waiting for longest.
MOST_UNVERIFIED = 4_000


#: A character for each byte, so that an extra that is text can be read in a head.
_BYTES = "latin-1"


_KNOWN_ENDS = frozenset([PLAIN_END, FENCING_END])

#: The names of fields.
_HEAD, _DECISION = (frozenset(field.name for field in fields(kind)) for kind in (Head, Decision))

#: The names that heads have for two fields of `Head`.
_ENDTXN, _UNVERIFIED = "endtxn", "unseen"


def encode(head: Head) -> bytes:
    """Return the head as compact JSON; a transaction takes about 100 bytes."""
    decision = head.decision
    partitioners = {head.partitioner} | ({decision.partitioner} if decision is not None else set())
    if not partitioners <= PARTITIONERS:
        raise AssertionError(f"nobody could read a head with {partitioners}")  # also with python -O
    raw = _plain(head) | {
        "format": FORMAT,
        "written_by": __version__,
        "decision": None if decision is None else _decision_to_json(decision),
        "write": None if head.write is None else asdict(head.write),
        "marks": head.marks.as_json(),
    }
    raw[_ENDTXN] = raw.pop("endtxn_version")
    raw[_UNVERIFIED] = _unverified_to_json(raw.pop("unverified"))
    return json.dumps(raw | _ids_to_json(head), separators=(",", ":"), sort_keys=True).encode()


def decode(data: bytes) -> Head:
    """Decode a head that `encode` has made. Raises LedgerError on anything else."""
    try:
        raw = json.loads(data)
        if raw["format"] != FORMAT:
            raise _unknown(raw, f"a record of format {raw['format']}", f"knows format {FORMAT}")
        decision, write, committed_as = raw["decision"], raw["write"], raw["committed_as"]
        given = raw | {
            "endtxn_version": raw[_ENDTXN],
            "earlier": tuple(raw["earlier"]),
            "partitioner": _partitioner(raw, raw["partitioner"]),
            "decision": None if decision is None else _decision_from_json(raw, decision),
            "write": None if write is None else _write_from_json(write),
            "committed_as": None if committed_as is None else tuple(committed_as),
            "unverified": _unverified_from_json(raw[_UNVERIFIED], raw.get("unseen_ids", {})),
            "topics": tuple(raw["topics"]),
            "marks": marks_of(raw["marks"]),
        }
        return Head(**{name: given[name] for name in _HEAD})
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        raise _unreadable(data, error) from None


def _plain(value: Head | Decision) -> dict[str, Any]:
    """Return the fields by their names, as they are."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _unreadable(data: bytes, error: Exception) -> EosError:
    """Return the error of a record that is no head by this version: somebody else's, unless another version has written
    it."""
    by = json.loads(data).get("written_by") if "written_by" in names_in(data) else None
    if by in (None, __version__):
        return stop("EOS_LEDGER_DAMAGED", name=type(error).__name__, error=error)
    return _unknown({"written_by": by}, "a record with unknown content", "cannot read that")


def _decision_to_json(decision: Decision) -> dict[str, Any]:
    with_begins = sum(len(w.begins) for w in decision.waiting) <= _MOST_BEGINS
    return _plain(decision) | {
        "digest_by": decision.digest_by.value,
        "extra": None if decision.extra is None else _extra_to_json(decision.extra),
        "written": [_written_to_json(w, with_begins=with_begins) for w in decision.written],
    }


def _decision_from_json(raw: Mapping[str, Any], decision: Mapping[str, Any]) -> Decision:
    added = decision.keys() - _DECISION
    if added:
        raise _unknown(raw, f"a decision with {', '.join(sorted(added))}", "does not know how to replay that")
    ids, rewrite, extra = raw.get("topic_ids", {}), decision["rewrite"], decision["extra"]
    given = dict(decision) | {
        "digest_by": _member(raw, Digest, decision["digest_by"], "digest"),
        "partitioner": _partitioner(raw, decision["partitioner"]),
        "rewrite": None if rewrite is None else tuple(rewrite),
        "extra": None if extra is None else _extra_from_json(**extra),
        "written": tuple(_written_from_json(raw, ids, *row) for row in decision["written"]),
    }
    return Decision(**{name: given[name] for name in _DECISION})


def _written_to_json(w: Written, *, with_begins: bool) -> list[Any]:
    """Return a row without field names, which would be most of a head with many transactions."""
    return [
        w.partition,
        [w.pair.id, w.pair.producer_id, w.pair.epoch],
        w.rows,
        w.digest,
        [w.probe.topic, w.probe.partition, w.probe.offset],
        w.verdict.value if w.verdict else None,
        w.endtxn_version,
        w.dead_letters,
        w.empty,
        _begins_to_json(w.begins if with_begins and w.verdict is None else ()),
        _text(w.extra),
    ]


def _written_from_json(
    raw: Mapping[str, Any],
    ids: Mapping[str, str],
    partition: int,
    pair: list[Any],
    rows: int,
    digest: int,
    probe: list[Any],
    verdict: str | None,
    endtxn_version: int,
    dead_letters: int,
    empty: list[list[Any]],
    begins: Mapping[str, list[list[int]]],
    extra: str,
) -> Written:
    if endtxn_version not in _KNOWN_ENDS:
        what = f"a transaction to be ended by version {endtxn_version} of EndTxn"
        raise _unknown(raw, what, f"speaks versions {PLAIN_END} and {FENCING_END}")
    return Written(
        partition,
        Pair(*pair),
        rows,
        digest,
        Probe(probe[0], probe[1], probe[2], None, ids.get(probe[0], "")),
        None if verdict is None else _member(raw, Verdict, verdict, "verdict"),
        endtxn_version,
        dead_letters,
        tuple((topic, number) for topic, number in empty),
        _begins_from_json(begins, ids),
        extra.encode(_BYTES),
    )


def _extra_to_json(extra: Extra) -> dict[str, Any]:
    return asdict(extra) | {"body": _text(extra.body)}


def _extra_from_json(kind: str, body: str, *, lasting: bool) -> Extra:
    return Extra(kind, body.encode(_BYTES), lasting)


def _text(body: bytes) -> str:
    return body.decode(_BYTES)


def _begins_to_json(begins: Sequence[Probe]) -> dict[str, list[list[int | None]]]:
    """Return topic → partition, first offset and last sequence number of each of its partitions."""
    places: dict[str, list[list[int | None]]] = {}
    for probe in sorted(begins, key=lambda probe: (probe.topic, probe.partition)):
        places.setdefault(probe.topic, []).append([probe.partition, probe.offset, probe.last])
    return places


def _begins_from_json(begins: Mapping[str, list[list[int]]], ids: Mapping[str, str]) -> tuple[Probe, ...]:
    return tuple(
        Probe(topic, number, offset, last, ids.get(topic, ""))
        for topic, places in begins.items()
        for number, offset, last in places
    )


def _probes_of(decision: Decision | None) -> Iterable[Probe]:
    return () if decision is None else (probe for w in decision.written for probe in (w.probe, *w.begins))


def _ids_to_json(head: Head) -> dict[str, dict[str, str]]:
    """Return the known ids of topics, kept apart from the offsets, which earlier versions can thus read."""
    probes = {"topic_ids": _probes_of(head.decision), "unseen_ids": (probe for _, probe in head.unverified)}
    ids = {name: {probe.topic: probe.topic_id for probe in own if probe.topic_id} for name, own in probes.items()}
    return {name: own for name, own in ids.items() if own}


def _unverified_to_json(unverified: TransactionStarts) -> list[list[Any]]:
    """Return a row for each transaction: its micro-batch, its id and producer, and its first offsets."""
    by_pair: dict[tuple[int, Pair], list[Probe]] = {}
    for (pair, probe), batch in sorted(unverified.items(), key=_in_order)[:MOST_UNVERIFIED]:
        by_pair.setdefault((batch, pair), []).append(probe)
    return [
        [batch, [pair.id, pair.producer_id, pair.epoch], _begins_to_json(probes)]
        for (batch, pair), probes in by_pair.items()
    ]


def _in_order(item: tuple[TransactionStart, int]) -> tuple[Any, ...]:
    (pair, probe), batch = item
    return batch, pair.id, pair.producer_id, pair.epoch, probe.topic, probe.partition, probe.offset


def _unverified_from_json(rows: Sequence[Sequence[Any]], ids: Mapping[str, str]) -> TransactionStarts:
    return {(Pair(*pair), probe): batch for batch, pair, begins in rows for probe in _begins_from_json(begins, ids)}


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


def _unknown(raw: Mapping[str, Any], what: str, why: str) -> EosError:
    version = raw.get("written_by")
    wrote = f"spark-eos {version}, which wrote it" if version else "the version of spark-eos that wrote it"
    return stop("EOS_LEDGER_FORMAT", written_by=version, what=what, why=why, wrote=wrote)


def marks_of(raw: Mapping[str, Any]) -> Marks:
    """Decode the JSON of `Marks.as_json`. Raises KeyError and TypeError."""
    unfinished = raw.get("unfinished")
    return Marks(
        unfinished=None if unfinished is None else _unfinished(unfinished),
        successor=Successor(**raw["successor"]) if "successor" in raw else None,
        topic=raw.get("topic"),
        missing=Missing(**raw["missing"]) if "missing" in raw else None,
    )


def _write_from_json(raw: Mapping[str, Any]) -> Write:
    return BatchWrite(**raw) if "job_id" in raw else ForeachBatchWrite(**raw)


def foreach_batch_write_of(data: bytes) -> ForeachBatchWrite | None:
    """Return which sink within which query's foreachBatch a head is of, also where the rest of it is of another
    version; None for any other write, and for somebody else's record."""
    try:
        write = json.loads(data)["write"]
        return ForeachBatchWrite(str(write["query"]), str(write["sink"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _unfinished(raw: Mapping[str, Any]) -> Unfinished:
    lists = {name: tuple(value) for name, value in raw.items() if isinstance(value, list)}
    return Unfinished(**{**raw, **lists})


def names_in(text: bytes) -> frozenset[str]:
    """Return the names in a JSON object; none of a text that is no object."""
    if not text.startswith(b"{"):
        return frozenset()
    try:
        return frozenset(json.loads(text))
    except (ValueError, RecursionError):
        return frozenset()
