"""Two-phase commit (KIP-939) in a schedule: who asks for it, which brokers offer it, and what they answer.

What a transaction's coordinator makes of it stands in `transactions`: a timeout of `NEVER_MS` that does not come.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spark_eos.kafka.codes import Code
from spark_eos.kafka.transactions import NEVER_MS

from .codec import Asked, error

if TYPE_CHECKING:
    from .cluster import Cluster

INIT, DESCRIBE_CONFIGS = 22, 32
#: The version of InitProducerId that has it.
VERSION = 6
SETTING = "transaction.two.phase.commit.enable"
#: The transaction.version that it needs.
FENCING_LEVEL = 2
#: The brokers' transaction.max.timeout.ms: of transactions that expire.
MOST_MS = 900_000

#: The error that says that it is not to be had, and on which a user takes the option away.
REFUSAL = "EOS_TWO_PHASE_UNAVAILABLE"

_BROKER = 4


@dataclass(frozen=True)
class TwoPhase:
    """``uses``: whether the first, second, … start asks for it, or the first, second, … transaction; the last one
    counts for all after it. ``sleeps``: seconds that a writer sleeps in the middle, and before the end.

    What stands in its way: ``mute`` are brokers that do not speak the version of the request, ``unset`` those without
    the setting; ``forbidden``: this user lacks the right; ``secret``: it may not read settings either. All that holds
    once so many producers have been initialized by it, ``granted``. ``same_name``: all transactions have one name.
    """

    uses: tuple[bool, ...] = (True,)
    sleeps: tuple[float, float] = (0.0, 0.0)
    mute: frozenset[int] = frozenset()
    unset: frozenset[int] = frozenset()
    forbidden: bool = False
    secret: bool = False
    granted: int = 0
    same_name: bool = False
    turns: tuple[tuple[int, float], ...] = field(default=())

    def used(self, number: int) -> bool:
        return self.uses[min(number, len(self.uses) - 1)]

    @property
    def hindered(self) -> bool:
        """Whether somebody does not offer it, at some time."""
        return bool(self.mute or self.unset or self.forbidden)

    def is_withheld(self, nodes: Collection[int]) -> bool:
        """Whether nobody has ever offered it."""
        return not self.granted and (self.forbidden or self.mute | self.unset >= set(nodes))


def draw_two_phase(seed: int, brokers: int, level: int) -> TwoPhase | None:
    """By a chance of its own, so that what else is drawn from the seed stays as it is. With a transaction.version
    below 2, queries that ask for it are only refused."""
    chance = random.Random(f"two-phase {seed}")
    if chance.random() > (0.5 if level == FENCING_LEVEL else 0.08):
        return None
    sleeps = chance.choice((0.0, 0.0, 70.0)), chance.choice((0.0, 70.0, 70.0, 2000.0))
    turns = {chance.randrange(60): chance.choice((70.0, 70.0, 400.0)) for _ in range(chance.choice((0, 0, 1, 2)))}
    uses = chance.choice(((True,), (True,), (True, False), (False, True), (True, False, True)))
    plan = {"uses": uses, "sleeps": sleeps, "turns": tuple(sorted(turns.items())), "same_name": chance.random() < 0.3}
    plan["secret"] = chance.random() < 0.2
    if chance.random() < 0.35:
        some = frozenset(node for node in range(1, brokers + 1) if chance.random() < 0.6) or frozenset({1})
        plan |= chance.choice(({"mute": some}, {"unset": some}, {"forbidden": True}))
        plan["granted"] = chance.choice((0, 0, 2, 3, 5))
    return TwoPhase(**plan)


class Offer:
    """The brokers' side of it. ``granted``: how many producers were initialized by it."""

    def __init__(self, cluster: Cluster, plan: TwoPhase | None) -> None:
        self._cluster, self._plan = cluster, plan
        self.granted = 0

    @property
    def _hindered(self) -> bool:
        return self._plan is not None and self.granted >= self._plan.granted

    def versions(self, node: int) -> dict[int, tuple[int, int]]:
        """What this broker speaks besides, by API key."""
        if self._plan is None:
            return {}
        mute = self._hindered and node in self._plan.mute
        return {DESCRIBE_CONFIGS: (1, 4)} | ({} if mute else {INIT: (0, VERSION)})

    def refusal(self, node: int, asked: Asked) -> int:
        """The code by which this broker refuses InitProducerId whoever coordinates the id."""
        plan, body = self._plan, asked.body
        wanted = asked.version >= VERSION and body.enable2_pc
        if plan is not None and wanted and self._hindered and (plan.forbidden or node in plan.unset):
            return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if asked.version >= VERSION and body.keep_prepared_txn:
            return Code.UNSUPPORTED_VERSION
        asked_ms = int(body.transaction_timeout.total_seconds() * 1000)
        return Code.NONE if asked_ms > 0 and (wanted or asked_ms <= MOST_MS) else Code.INVALID_TRANSACTION_TIMEOUT

    def timeout_ms(self, asked: Asked) -> int:
        if asked.version >= VERSION and asked.body.enable2_pc:
            return NEVER_MS
        return int(asked.body.transaction_timeout.total_seconds() * 1000)

    def grant(self, asked: Asked) -> None:
        """A producer was initialized. Brokers that stop to speak the version were started again for that."""
        if self._plan is None or asked.version < VERSION:
            return
        self.granted += 1
        if self.granted == self._plan.granted:
            for node in sorted(self._plan.mute & set(self._cluster.nodes)):
                self._cluster.world.at(0.001, self._cluster.nodes[node].restart, 1.0)

    def settings(self, node: int, asked: Asked, kinds: Any, code: int | None) -> dict[str, Any]:
        """The answer to DescribeConfigs."""
        results = []
        for resource in asked.body.resources:
            found = code if code is not None else Code.NONE
            if found == Code.NONE and self._plan is not None and self._plan.secret:
                found = Code.CLUSTER_AUTHORIZATION_FAILED
            if found == Code.NONE and (resource.resource_type, resource.resource_name) != (_BROKER, str(node)):
                found = Code.INVALID_REQUEST
            unset = self._plan is not None and self._hindered and node in self._plan.unset
            known = {SETTING: "false" if unset else "true"} if found == Code.NONE else {}
            wanted = known if resource.configuration_keys is None else resource.configuration_keys
            results.append(
                kinds.DescribeConfigsResult(
                    error_code=error(found),
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=tuple(_setting(kinds, name, known[name]) for name in wanted if name in known),
                )
            )
        return {"": kinds.DescribeConfigsResponse, "results": tuple(results)}


def _setting(kinds: Any, name: str, value: str) -> Any:
    return kinds.DescribeConfigsResourceResult(
        name=name, value=value, read_only=True, is_sensitive=False, synonyms=(), documentation=None
    )
