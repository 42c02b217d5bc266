"""Which query mirrors a topic to a target: noted in the first partition of the map's topic, before the query plans to
read the topic.

A claim is a record of its own for each query, topic of the source and target. The order of the log decides between
queries that claim the same: whoever claims later may go on only after it has retired whoever has claimed before, in
that query's own ledger. So a claim is written once, and not again while it holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.mirror.map_topic import ORIGINS, MapPartition, write_notes
from spark_eos.retry import retrying

_KEY = b'{"claim":'
#: For how long an open transaction in that partition is waited for, which only a map of one partition can have.
_STABLE_S = 60.0


@dataclass(frozen=True)
class Claim:
    """``query`` mirrors the topic ``source``, of id ``source_id``, to the topic ``target``.

    ``ledger`` and ``prefix`` say where it can be retired: its ledger topic, and the prefix of its transactional ids.
    ``checkpoint``, ``host`` and ``since_ms`` (of the epoch) are for people. ``released``: it has taken the topic off
    since. ``at``: the offset of the record.
    """

    query: str
    source_id: str
    target: str
    source: str
    ledger: str
    prefix: str
    checkpoint: str
    host: str
    since_ms: int
    released: bool = False
    at: int = field(default=-1, compare=False)

    @property
    def what(self) -> tuple[str, str]:
        """What is claimed: the id of the source's topic, and the name of the target's."""
        return self.source_id, self.target


def key_of(claim: Claim) -> bytes:
    """By which a claim takes the place of an earlier one of the same query, and no other's does."""
    return json.dumps({"claim": claim.query, "source": claim.source_id, "target": claim.target}).encode()


def to_record(claim: Claim) -> tuple[bytes, bytes]:
    """Key and value, as JSON."""
    fields: dict[str, Any] = asdict(claim)
    for name in ("query", "source_id", "target", "at"):
        del fields[name]
    return key_of(claim), json.dumps(fields).encode()


def from_record(at: int, key: bytes, value: bytes) -> Claim:
    """The inverse of `to_record`. Fields that a later version has added are ignored. Raises KeyError, TypeError,
    ValueError."""
    place, fields = json.loads(key), json.loads(value)
    names = ("source", "ledger", "prefix", "checkpoint", "host", "since_ms", "released")
    known = {name: fields[name] for name in names}
    return Claim(query=place["claim"], source_id=place["source"], target=place["target"], at=at, **known)


def read_claims(kafka: KafkaProperties, map_topic: str) -> list[Claim]:
    """All that are there now, those that were released among them, in the order of the log.

    Raises KafkaError (EOS_MIRROR_MAP_HELD) where an open transaction hides some, and errors as for `MapPartition`.
    """
    end = end_offsets(kafka, {map_topic: [ORIGINS]}, "read_uncommitted")[map_topic][ORIGINS]
    for _ in retrying(_STABLE_S):
        part = MapPartition(kafka, map_topic, ORIGINS)
        if part.end >= end:
            newest = {key: (at, value) for at, key, value in part if key is not None and key.startswith(_KEY)}
            found = [from_record(at, key, value) for key, (at, value) in newest.items() if value is not None]
            return sorted(found, key=lambda claim: claim.at)
    raise held(map_topic, ORIGINS, _STABLE_S)


def write_claims(kafka: KafkaProperties, map_topic: str, claims: Iterable[Claim]) -> None:
    """Returns when the brokers have them. Raises KafkaError (EOS_MIRROR_MAP_NOT_WRITABLE)."""
    write_notes(kafka, map_topic, map(to_record, claims), "Which query mirrors the topics")


def remove_claims(kafka: KafkaProperties, map_topic: str, claims: Iterable[Claim]) -> None:
    """Delete claims of queries that are retired, or that have not gone on. Errors as for `write_claims`."""
    write_notes(kafka, map_topic, [(key_of(claim), None) for claim in claims], "Which query mirrors the topics")


def release_claims(kafka: KafkaProperties, map_topic: str, claims: Iterable[Claim]) -> None:
    """Note that their query has taken the topics off. Errors as for `write_claims`."""
    write_claims(kafka, map_topic, [replace(claim, released=True) for claim in claims])


def owner_of(claim: Claim) -> str:
    """Whose it is, for people."""
    since = datetime.fromtimestamp(claim.since_ms / 1000, UTC).isoformat(" ", "seconds")
    return f"query {claim.query} (since {since}, on {claim.host}, checkpoint {claim.checkpoint})"


def held(map_topic: str, partition: int, wait_s: float) -> EosError:
    """For what lies behind an open transaction in the topic of the map."""
    return stop("EOS_MIRROR_MAP_HELD", topic=map_topic, partition=partition, wait_s=wait_s)
