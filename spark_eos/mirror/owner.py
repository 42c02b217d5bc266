"""One mirror of a topic to a target at a time: whoever starts takes it, and stops who had it before.

What a mirror is, is held at the target: the claims of its query (`spark_eos.mirror.claims`). A query claims a topic
before it plans to read it. Then it retires the queries that have claimed the same before, each in its own ledger, which
fences their runs and stops every later start (`spark_eos.protocol.commands.hand_over`). It is refused where it would
not go on exactly where they have ended, or would leave topics of theirs without a mirror.

A query that holds its claims looks no further: whoever takes a topic from it has to get past its ledger.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from spark_eos import failpoints
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.stores import without_secrets
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.configs import broker_config
from spark_eos.kafka.admin.topics import describe_topics
from spark_eos.ledger.owners import Cluster
from spark_eos.log import logger
from spark_eos.mirror.beginning import check_positions
from spark_eos.mirror.claims import Claim, held, owner_of, read_claims, release_claims, remove_claims, write_claims
from spark_eos.mirror.map_topic import held_partition, make_map
from spark_eos.mirror.plan import MirrorPlan
from spark_eos.protocol.checks import check_halts, ledger_busy
from spark_eos.protocol.commands import Standing, hand_over, standing
from spark_eos.protocol.head import Successor
from spark_eos.protocol.ports import Ports
from spark_eos.retry import retrying
from spark_eos.sink.ledger_topic import ledger_partitions
from spark_eos.topic_partition import PartitionOffsets

#: For how long it is tried to retire a query that decides again and again.
_TAKE_S = 30.0
#: For how long readers of the map are held up, at the most, by what a retired query had open.
_STABLE_S = 60.0


@dataclass(frozen=True)
class Followed:
    """Topics that a query follows. ``ids``: of all of them, by name. ``at``: where it goes on in each; one that is left
    out is in a micro-batch that is logged already, and may be decided. ``new``: those of which its offset log has
    nothing yet."""

    ids: Mapping[str, str]
    at: PartitionOffsets = field(default_factory=dict)
    new: Collection[str] = ()


class Ownership:
    """What one mirror owns, in the process that plans it."""

    def __init__(self, plan: MirrorPlan) -> None:
        self._plan, self._kafka, self._map = plan, plan.sink.kafka, plan.targets.map
        self._held: set[tuple[str, str]] = set()
        self._query: str | None = None

    def hold(self, followed: Followed) -> None:
        """Claim what is not held yet, and retire who had it. Does nothing where all is held.

        Raises KafkaError (EOS_MIRROR_OWNED, EOS_MIRROR_BEGINS_ELSEWHERE, EOS_MIRROR_MAP_HELD),
        Superseded where this query is retired itself, CheckpointError, and what looking at a ledger and the map raises.
        """
        asked = {name: id_ for name, id_ in followed.ids.items() if (name, id_) not in self._held}
        if not asked:
            return
        make_map(self._kafka, self._map, self._plan.targets.replication)
        query = self._own_query()
        taking = _Taking(self._plan, query, asked, followed, read_claims(self._kafka, self._map))
        taking.look()
        fresh = taking.fresh()
        if fresh:
            write_claims(self._kafka, self._map, fresh)
            failpoints.reach("mirror.claimed")
            taking = _Taking(self._plan, query, asked, followed, read_claims(self._kafka, self._map))
            if taking.fresh():
                self._check_own_head(query)
                raise ledger_busy()  # another start of this query, with other topics, has released them
        taking.take()
        self._held |= set(asked.items())

    def release(self, followed: Collection[str]) -> None:
        """Give up claims on topics that were taken off the mirror: ``followed`` are those that are left."""
        query = self._own_query()
        own = [c for c in read_claims(self._kafka, self._map) if c.query == query and not c.released]
        gone = [claim for claim in own if claim.source not in followed]
        if gone:
            release_claims(self._kafka, self._map, gone)
            self._held -= {(claim.source, claim.source_id) for claim in gone}

    def _own_query(self) -> str:
        """The id of this query, which Spark has noted by now."""
        if self._query is None:
            sink = self._plan.sink
            query = Checkpoint(sink.checkpoint_location or "", sink.storage).query_id()
            if query is None:
                raise stop("EOS_MIRROR_NO_QUERY", location=_location(self._plan))
            ledger_partitions(sink.kafka, sink.ledger_topic, broker_config(sink.kafka))
            self._check_own_head(query)
            self._query = query
        return self._query

    def _check_own_head(self, query: str) -> None:
        """Raise Superseded where the query is retired."""
        sink = self._plan.sink
        check_halts(Cluster(sink.kafka, sink.ledger_topic, sink.prefix).ports(query).ledger.read(), None)


def _location(plan: MirrorPlan) -> str:
    return without_secrets(plan.sink.checkpoint_location or "", plan.sink.storage)


class _Taking:
    """One try to take topics. ``asked``: their ids, by name; ``claims``: all that there are."""

    def __init__(
        self, plan: MirrorPlan, query: str, asked: Mapping[str, str], followed: Followed, claims: Collection[Claim]
    ) -> None:
        self._plan, self._query, self._asked, self._followed, self._claims = plan, query, asked, followed, claims
        own = [claim for claim in claims if claim.query == query]
        # Then its offset log may be behind what others have mirrored since.
        self._known = bool(own)
        self._own = {claim.what: claim.at for claim in own if not claim.released}
        self._wanted = {(id_, plan.target(name)): name for name, id_ in asked.items()}
        self._rivals = self._earlier()

    def fresh(self) -> list[Claim]:
        """The claims that the query lacks."""
        sink, now_ms = self._plan.sink, int(time.time() * 1000)
        return [
            Claim(
                query=self._query,
                source_id=what[0],
                target=what[1],
                source=name,
                ledger=sink.ledger_topic,
                prefix=sink.prefix,
                checkpoint=_location(self._plan),
                host=socket.gethostname(),
                since_ms=now_ms,
            )
            for what, name in sorted(self._wanted.items())
            if what not in self._own
        ]

    def look(self) -> None:
        """Refuse, before anything is noted or anybody is stopped, what `take` would."""
        self._seen()

    def take(self) -> None:
        """1. Look at who has claimed the same before: what it has decided is settled, and may not be the last.
        2. Refuse, before anybody is stopped, what cannot go on where that has ended.
        3. Retire it, unless it has decided something since the look: then look again.
        4. From here on nobody else can decide anything: look once more at where it has ended, in all that is visible.
        """
        if not self._rivals:
            return
        successor = Successor(self._query, _location(self._plan))
        for _ in retrying(_TAKE_S):
            live, checked = self._seen()
            if all(
                hand_over(self._ports(query), successor, one, self._rivals[query][0].prefix)
                for query, one in live.items()
            ):
                break
        else:
            raise ledger_busy()
        if live:
            self._check_again(checked)
            logger.warning(
                "query=%s mirrors %s from here on: %s", self._query, ", ".join(sorted(self._asked)), self._who(live)
            )
        remove_claims(
            self._plan.sink.kafka, self._plan.targets.map, [claim for some in self._rivals.values() for claim in some]
        )

    def _seen(self) -> tuple[dict[str, Standing], list[str]]:
        """How those stand that are not retired, and the topics of which it was looked where they have ended."""
        seen = {query: standing(self._ports(query)) for query in self._rivals}
        live = {query: one for query, one in seen.items() if not one.retired}
        self._check_live(live)
        return live, self._check_positions(seen)

    def _earlier(self) -> dict[str, list[Claim]]:
        """By query, the claims of others on what is asked for that come before its own."""
        found: dict[str, list[Claim]] = {}
        for claim in self._claims:
            theirs = claim.query != self._query and not claim.released
            if theirs and claim.what in self._wanted and claim.at < self._own.get(claim.what, math.inf):
                found.setdefault(claim.query, []).append(claim)
        return found

    def _ports(self, query: str) -> Ports:
        claim = self._rivals[query][0]
        return Cluster(self._plan.sink.kafka, claim.ledger, claim.prefix).ports(query)

    def _check_live(self, live: Collection[str]) -> None:
        """Raise KafkaError where a query that may be running must not be stopped by this one."""
        if not live:
            return
        there = describe_topics(self._plan.source.kafka, {c.source for c in self._claims}, missing_ok=True)
        mine = {(id_, self._plan.target(name)) for name, id_ in self._followed.ids.items()}
        for query in sorted(live):
            first = self._rivals[query][0]
            for claim in self._rivals[query]:
                if claim.source not in self._followed.new:
                    raise _owned(claim, "and this query has read the topic before, and is at other offsets")
            left = [
                claim.source
                for claim in self._claims
                if claim.query == query
                and not claim.released
                and claim.what not in mine
                and claim.source in there
                and there[claim.source].id == claim.source_id
            ]
            if left:
                raise _owned(first, f"which also mirrors {', '.join(sorted(left))}")

    def _check_positions(self, seen: Mapping[str, Standing]) -> list[str]:
        """Raise KafkaError where rows would be mirrored twice, or left out; the topics that were looked at."""
        others = {c.source: c for q, some in self._rivals.items() if seen[q].successor != self._query for c in some}
        for name, claim in others.items():
            if name not in self._followed.at:
                raise _owned(claim, "or was, and this query is about to repeat a micro-batch of it")
        checked = [
            name
            for name in self._asked
            if name in self._followed.at and (name in self._followed.new or name in others or self._goes_on(name, seen))
        ]
        self._check(checked)
        return checked

    def _goes_on(self, name: str, seen: Mapping[str, Standing]) -> bool:
        """Whether the query has claimed the topic before, and nobody has made it the successor of another one."""
        heirs = {c.source for q, some in self._rivals.items() if seen[q].successor == self._query for c in some}
        return self._known and name not in heirs

    def _check(self, names: Collection[str]) -> None:
        ids = {name: self._asked[name] for name in names}
        check_positions(self._plan, ids, {name: self._followed.at[name] for name in names}, self._followed.new)

    def _check_again(self, names: Collection[str]) -> None:
        """Others' open transactions may have hidden a part of the map. Raises as `hold` does."""
        held_at = held_partition(self._plan.sink.kafka, self._plan.targets.map, _STABLE_S)
        if held_at is not None:
            raise held(self._plan.targets.map, held_at, _STABLE_S)
        self._check(names)

    def _who(self, queries: Iterable[str]) -> str:
        return "; ".join(f"{owner_of(self._rivals[query][0])} was retired" for query in queries)


def _owned(claim: Claim, why: str) -> EosError:
    return stop(
        "EOS_MIRROR_OWNED", topic=claim.source, target=claim.target, query=claim.query, owner=owner_of(claim), why=why
    )
