"""Produce from version 12 on: the leader has the coordinator add the partition to the transaction (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .codes import OK
from .coordinator import Cluster
from .partition_log import Place
from .world import Reply, World

POLL_MS = 20


def produce_adding(
    world: World, cluster: Cluster, name: str, own: tuple[int, int], place: Place, sequence: int, payload: Any
) -> Reply:
    """The leader writes once the coordinator has added the partition, however late; until then nobody is answered. It
    does not ask where the transaction has already begun.

    ``own``: producer id and epoch.
    """
    if (code := cluster.leaders.code(place)) is not None:
        return Reply(code)
    if cluster.log(place).is_open(*own):
        return cluster.produce(name, *own, place, sequence, payload)
    reply = Reply()

    def answer(written: Reply) -> None:
        reply.code, reply.value = written.code, written.value

    def added(adding: Reply) -> None:
        if adding.code == OK:
            _when_answered(world, cluster.produce(name, *own, place, sequence, payload), answer)
        else:
            answer(adding)

    _when_answered(world, cluster.add(name, *own, place), added)
    return reply


def _when_answered(world: World, reply: Reply, then: Callable[[Reply], None]) -> None:
    if reply.code is not None:
        then(reply)
    else:
        world.at(POLL_MS, lambda: _when_answered(world, reply, then))
