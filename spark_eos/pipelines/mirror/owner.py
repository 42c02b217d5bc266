"""One mirror of a topic to a target at a time: the query that starts takes the topic over, and stops its former owner.

Ownership is recorded at the target. A query writes a *claim* for each topic, target and query to the first partition of
the map's topic, before it plans to read the topic. The order of that log decides between queries that claim the same
topic: the query that claimed it later continues only after it has retired all earlier owners, each in its own ledger.
That fences their runs and stops every later start (`spark_eos.protocol.commands.hand_over`). The later query is refused
where it would not continue exactly at the end of their rows, or would leave topics of theirs without a
mirror.

A query that holds its claims does not read them again: a query that takes a topic from it has to get past its ledger.
So a claim is written once, and not again while it holds.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from spark_eos.base import failpoints
from spark_eos.base.log import logger
from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import PartitionOffsets, TopicPartition, by_topic
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import EosError, stop
from spark_eos.ledger.operator import QueryOperator
from spark_eos.pipelines.mirror.offset_map import (
    FOREIGN,
    METADATA,
    MapPartition,
    OffsetMap,
    Translation,
    foreign,
    held_partition,
    make_map,
    origins,
    write_metadata,
)
from spark_eos.pipelines.mirror.plan import MirrorClients, MirrorPlan
from spark_eos.protocol.commands import SettledState
from spark_eos.sink.ledger_topic import make_ledger
from spark_eos.spi import BrokerClient, begin_offsets, describe_topics, end_offsets

#: How the key of a claim begins.
_KEY = b'{"claim":'
#: Of a partition of which the map has nothing.
_NOTHING = Translation(0, 0, doubled=False, positions={})
#: How long to try to retire a query that keeps deciding micro-batches.
_RETIRE_S = 30.0
#: Timeout for open transactions in the map's topic: of a retired query or, in a topic that has only one partition, of
#: other mirrors.
_STABLE_S = 60.0


@dataclass(frozen=True)
class Claim:
    """A claim in the offset map: ``query`` mirrors the topic ``source``, of id ``source_id``, to the topic ``target``.

    ``ledger`` (its ledger topic) and ``prefix`` (of its transactional ids) are needed to retire the query.
    ``checkpoint``, ``host`` and ``since_ms`` (since 1970) are for people. ``released``: the query no longer mirrors the
    topic. ``at``: the offset of the record.
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
    def pair(self) -> tuple[str, str]:
        """The claimed pair: the id of the source topic, and the name of the target topic."""
        return self.source_id, self.target

    @property
    def owner(self) -> str:
        """The query, for people."""
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(" ", "seconds")
        return f"query {self.query} (since {since}, on {self.host}, checkpoint {self.checkpoint})"


def key_of(claim: Claim) -> bytes:
    """Return the record's key, by which a claim replaces an earlier one of its own query, and no other query's."""
    return json.dumps({"claim": claim.query, "source": claim.source_id, "target": claim.target}).encode()


def to_record(claim: Claim) -> tuple[bytes, bytes]:
    """Return key and value, as JSON."""
    fields: dict[str, Any] = asdict(claim)
    for name in ("query", "source_id", "target", "at"):
        del fields[name]
    return key_of(claim), json.dumps(fields).encode()


def from_record(at: int, key: bytes, value: bytes) -> Claim:
    """Parse the result of `to_record`. Fields that a later version has added are ignored. Raises one of `FOREIGN` for
    any other record."""
    claimed, fields = json.loads(key), json.loads(value)
    names = ("source", "ledger", "prefix", "checkpoint", "host", "since_ms", "released")
    known = {name: fields[name] for name in names}
    return Claim(query=claimed["claim"], source_id=claimed["source"], target=claimed["target"], at=at, **known)


def read_claims(client: BrokerClient, map_topic: str) -> list[Claim]:
    """Return all claims, released ones included, in the order of the log.

    Raises KafkaError (EOS_MIRROR_MAP_HELD) where an open transaction hides some, and errors as for `MapPartition`.
    """
    end = end_offsets(client, {map_topic: [METADATA]}, "read_uncommitted")[map_topic][METADATA]
    for _ in retrying(_STABLE_S):
        part = MapPartition(client, map_topic, METADATA)
        if part.end >= end:
            newest = {key: (at, value) for at, key, value in part if key is not None and key.startswith(_KEY)}
            claims = [_claim(map_topic, at, key, value) for key, (at, value) in newest.items() if value is not None]
            return sorted(claims, key=lambda claim: claim.at)
    raise _held(map_topic, METADATA)


def _claim(map_topic: str, at: int, key: bytes, value: bytes) -> Claim:
    try:
        return from_record(at, key, value)
    except FOREIGN as error:
        raise foreign(map_topic, METADATA, at, error) from None


def write_claims(client: BrokerClient, map_topic: str, claims: Iterable[Claim]) -> None:
    """Write the claims, and return when the brokers have them. Raises KafkaError (EOS_MIRROR_MAP_NOT_WRITABLE)."""
    write_metadata(client, map_topic, map(to_record, claims), "Which query mirrors the topics")


def remove_claims(client: BrokerClient, map_topic: str, claims: Iterable[Claim]) -> None:
    """Delete claims of queries that are retired. Errors as for `write_claims`."""
    write_metadata(client, map_topic, [(key_of(claim), None) for claim in claims], "Which query mirrors the topics")


def _held(map_topic: str, partition: int) -> EosError:
    return stop("EOS_MIRROR_MAP_HELD", topic=map_topic, partition=partition, wait_s=_STABLE_S)


@dataclass(frozen=True)
class Followed:
    """The topics that a query mirrors. ``ids``: their ids, by name. ``at``: the offsets at which the query goes on in
    each; a topic that is left out is in a micro-batch that is logged already, and may be decided. ``new``: the topics
    that are not in the query's offset log yet."""

    ids: Mapping[str, str]
    at: PartitionOffsets = field(default_factory=dict)
    new: Collection[str] = ()


class Ownership:
    """The claims of one mirror, in the process that plans it."""

    def __init__(self, plan: MirrorPlan, clients: MirrorClients) -> None:
        self._plan, self._map, self._clients, self._target = plan, plan.targets.map, clients, clients.target
        self._held: set[tuple[str, str]] = set()
        self._query: str | None = None

    def hold(self, followed: Followed) -> None:
        """Claim the topics that this query does not own yet, and retire their owners. Does nothing if it owns all.

        Raises KafkaError (EOS_MIRROR_OWNED, EOS_MIRROR_BEGINS_ELSEWHERE, EOS_MIRROR_MAP_HELD), Superseded where this
        query is retired itself, CheckpointError, and the errors of reading ledgers and the map.
        """
        topics = {name: id_ for name, id_ in followed.ids.items() if (name, id_) not in self._held}
        if not topics:
            return
        make_map(self._target, self._map, self._plan.targets.replication)
        query = self._own_query()
        takeover = self._takeover(query, topics, followed)
        takeover.check()
        missing = takeover.missing_claims()
        if missing:
            write_claims(self._target, self._map, missing)
            failpoints.reach("mirror.claimed")
            takeover = self._takeover(query, topics, followed)
            if takeover.missing_claims():
                self._check_not_retired(query)
                raise stop("EOS_LEDGER_BUSY")  # another start of this query, with other topics, has released them
        takeover.run()
        self._held |= set(topics.items())

    def _takeover(self, query: str, topics: Mapping[str, str], followed: Followed) -> _Takeover:
        claims = read_claims(self._target, self._map)
        return _Takeover(self._plan, self._clients, query, topics, followed, claims)

    def release(self, followed: Collection[str]) -> None:
        """Give up the claims on topics that are no longer mirrored; ``followed`` are the topics that still are."""
        query = self._own_query()
        own = [c for c in read_claims(self._target, self._map) if c.query == query and not c.released]
        gone = [claim for claim in own if claim.source not in followed]
        if gone:
            write_claims(self._target, self._map, [replace(claim, released=True) for claim in gone])
            self._held -= {(claim.source, claim.source_id) for claim in gone}

    def _own_query(self) -> str:
        """Return the id of this query, which Spark has written to the checkpoint by now."""
        if self._query is None:
            sink = self._plan.sink
            query = Checkpoint(sink.checkpoint_location or "", sink.storage).query_id()
            if query is None:
                raise stop("EOS_MIRROR_NO_QUERY", location=_location(self._plan))
            make_ledger(self._target, sink.ledger_topic)
            self._check_not_retired(query)
            self._query = query
        return self._query

    def _check_not_retired(self, query: str) -> None:
        """Raise Superseded where this query is retired."""
        sink = self._plan.sink
        QueryOperator.with_ledger(self._target, sink.ledger_topic, sink.prefix, query).check_may_start()


def _location(plan: MirrorPlan) -> str:
    return plan.sink.storage.hide(plan.sink.checkpoint_location or "")


class _Takeover:
    """One attempt to take topics over. ``topics``: their ids, by name; ``claims``: all claims on this target."""

    def __init__(
        self,
        plan: MirrorPlan,
        clients: MirrorClients,
        query: str,
        topics: Mapping[str, str],
        followed: Followed,
        claims: Collection[Claim],
    ) -> None:
        self._plan, self._query, self._topics, self._followed, self._claims = plan, query, topics, followed, claims
        self._clients, self._target, self._map = clients, clients.target, plan.targets.map
        own = [claim for claim in claims if claim.query == query]
        # Then its offset log may be behind the rows that others have mirrored since.
        self._has_claimed_before = bool(own)
        self._own = {claim.pair: claim.at for claim in own if not claim.released}
        self._wanted = {(id_, plan.target(name)): name for name, id_ in topics.items()}
        self._earlier = self._earlier_claims()
        first = {query: claims[0] for query, claims in self._earlier.items()}
        self._operators = {q: QueryOperator.with_ledger(self._target, c.ledger, c.prefix, q) for q, c in first.items()}

    def missing_claims(self) -> list[Claim]:
        """Return the claims that this query has yet to write."""
        sink, now_ms = self._plan.sink, int(time.time() * 1000)
        return [
            Claim(
                query=self._query,
                source_id=pair[0],
                target=pair[1],
                source=name,
                ledger=sink.ledger_topic,
                prefix=sink.prefix,
                checkpoint=_location(self._plan),
                host=socket.gethostname(),
                since_ms=now_ms,
            )
            for pair, name in sorted(self._wanted.items())
            if pair not in self._own
        ]

    def check(self) -> None:
        """Raise the errors of `run` that can be known before anything is written or any query is stopped."""
        self._checked_owners()

    def run(self) -> None:
        """1. Read the ledgers of the earlier owners: their decisions are settled, and may not be the last.
        2. Refuse, before any of them is stopped, a query that would not continue where they have ended.
        3. Retire them, unless one has decided something since step 1: then start again. End the
           transactions of retired queries that are open: the query that has retired them may have died before.
        4. From here on no other query can decide anything: check once more where they have ended, in all that is
           visible.
        """
        if not self._earlier:
            return
        location = _location(self._plan)
        for _ in retrying(_RETIRE_S):
            states, checked = self._checked_owners()
            if all(
                self._operators[query].retire(state.decision, self._query, location) for query, state in states.items()
            ):
                break
        else:
            raise stop("EOS_LEDGER_BUSY")
        if checked:
            self._check_again(checked)
        live = [query for query, state in states.items() if not state.retired]
        if live:
            retired = "; ".join(f"{self._earlier[query][0].owner} was retired" for query in live)
            logger.warning(
                "query=%s mirrors %s from here on: %s", self._query, ", ".join(sorted(self._topics)), retired
            )
        replaced = [claim for claims in self._earlier.values() for claim in claims]
        remove_claims(self._target, self._map, replaced)

    def _checked_owners(self) -> tuple[dict[str, SettledState], list[str]]:
        """Return the state of the earlier owners, and the topics whose ends were checked."""
        states = {query: operator.settled_state() for query, operator in self._operators.items()}
        self._check_live([query for query, state in states.items() if not state.retired])
        return states, self._check_ends(states)

    def _earlier_claims(self) -> dict[str, list[Claim]]:
        """Return other queries' claims on these topics that precede this query's own, by query."""
        earlier: dict[str, list[Claim]] = {}
        for claim in self._claims:
            theirs = claim.query != self._query and not claim.released
            if theirs and claim.pair in self._wanted and claim.at < self._own.get(claim.pair, math.inf):
                earlier.setdefault(claim.query, []).append(claim)
        return earlier

    def _check_live(self, live: Collection[str]) -> None:
        """Raise KafkaError where this query must not stop an owner that may be running."""
        if not live:
            return
        there = describe_topics(self._clients.source, {c.source for c in self._claims}, missing_ok=True)
        followed = {(id_, self._plan.target(name)) for name, id_ in self._followed.ids.items()}
        for query in sorted(live):
            for claim in self._earlier[query]:
                if claim.source not in self._followed.new:
                    raise stop(
                        "EOS_MIRROR_OWNED", is_at="has mirrored it and is at other offsets", **_parameters(claim)
                    )
            orphans = [
                claim.source
                for claim in self._claims
                if claim.query == query
                and not claim.released
                and claim.pair not in followed
                and claim.source in there
                and there[claim.source].id == claim.source_id
            ]
            if orphans:
                others = ", ".join(sorted(orphans))
                is_at = f"does not mirror {others}, which that query mirrors, too"
                raise stop("EOS_MIRROR_OWNED", is_at=is_at, **_parameters(self._earlier[query][0]))

    def _check_ends(self, states: Mapping[str, SettledState]) -> list[str]:
        """Raise KafkaError where rows would be mirrored twice, or left out; the topics that were checked."""
        handed_over: set[str] = set()  # to this query, by an attempt that ended before it removed the claims
        others: dict[str, Claim] = {}
        for query, claims in self._earlier.items():
            if states[query].successor == self._query:
                handed_over |= {claim.source for claim in claims}
            else:
                others |= {claim.source: claim for claim in claims}
        for name, claim in others.items():
            if name not in self._followed.at:
                raise stop("EOS_MIRROR_OWNED", is_at="is about to repeat rows of it", **_parameters(claim))
        checked = [
            name
            for name in self._topics
            if name in self._followed.at
            and (name in self._followed.new or name in others or (self._has_claimed_before and name not in handed_over))
        ]
        self._check_positions(checked)
        return checked

    def _check_again(self, names: Collection[str]) -> None:
        """Run `_check_positions` once no open transaction of others hides a part of the map. Raises the errors of
        `hold`."""
        partition = held_partition(self._target, self._map, _STABLE_S)
        if partition is not None:
            raise _held(self._map, partition)
        self._check_positions(names)

    def _check_positions(self, names: Collection[str]) -> None:
        ids = {name: self._topics[name] for name in names}
        at = {name: self._followed.at[name] for name in names}
        check_positions(self._plan, self._clients, ids, at, self._followed.new)


def _parameters(claim: Claim) -> dict[str, str]:
    """Return the claim as EOS_MIRROR_OWNED shows it."""
    return {"topic": claim.source, "target": claim.target, "query": claim.query, "owner": claim.owner}


def mirrored_topics(plan: MirrorPlan, target: BrokerClient, ids: Mapping[str, str]) -> set[str]:
    """Return the topics, out of these names and ids, whose targets may have rows."""
    known = [origin for origin in origins(target, plan.targets.map) if origin.is_from(plan.cluster)]
    return {o.source for o in known if ids.get(o.source) == o.source_id and o.target == plan.target(o.source)}


def check_positions(
    plan: MirrorPlan, clients: MirrorClients, ids: Mapping[str, str], at: PartitionOffsets, new: Collection[str]
) -> None:
    """Refuse to read topics, by their ids, from offsets before the end that the offset map has for their targets:
    rows would be there twice. In topics that are ``new`` to the query, later offsets are refused, too, if the source
    has rows in between.

    Raises KafkaError (EOS_MIRROR_BEGINS_ELSEWHERE).
    """
    client = clients.target
    before = mirrored_topics(plan, client, ids)
    if not before:
        return
    there = describe_topics(client, {plan.target(topic) for topic in before}, missing_ok=True)
    partitions = {(topic, p): () for topic in before for p in at.get(topic, ())}
    known = {topic: ids[topic] for topic in before}
    map_ = OffsetMap.read(client, plan.cluster, partitions, plan.targets.map, ids=known)
    ends: dict[TopicPartition, int] = {}
    for topic, p in sorted(partitions):
        name, translation = plan.target(topic), map_.get(ids[topic], p) or _NOTHING
        if name not in there:
            continue
        end = translation.targets.get(there[name].id, 0)
        if at[topic][p] < end:
            claims = read_claims(client, plan.targets.map)
            owners = [c.owner for c in claims if c.pair == (ids[topic], name) and not c.released]
            raise stop(
                "EOS_MIRROR_BEGINS_ELSEWHERE.repeats",
                topic=topic,
                partition=p,
                begin=at[topic][p],
                target=name,
                end=end,
                whose=f", by {owners[-1]}" if owners else "",
            )
        if topic in new and len(translation.targets) <= 1:  # with more, the end may be another target's
            ends[topic, p] = translation.end
    if plan.source.fail_on_data_loss:
        later = {(topic, p): end for (topic, p), end in ends.items() if end < at[topic][p]}
        _check_nothing_skipped(plan, clients.source, at, later)


def _check_nothing_skipped(
    plan: MirrorPlan, source: BrokerClient, at: PartitionOffsets, ends: Mapping[TopicPartition, int]
) -> None:
    """Raise KafkaError if the source still has records between the end of a target and the offset at which the mirror
    begins. ``ends``: the ends of such targets, by partition."""
    begins = begin_offsets(source, by_topic(ends)) if ends else {}
    for (topic, p), end in ends.items():
        if begins[topic][p] < at[topic][p]:
            raise stop(
                "EOS_MIRROR_BEGINS_ELSEWHERE.skips",
                topic=topic,
                partition=p,
                begin=at[topic][p],
                target=plan.target(topic),
                end=end,
            )
