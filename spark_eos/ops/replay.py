"""``spark-eos replay``: lets a query read and write rows again, on purpose.

`spark_eos.ops.replay_plan` makes the plan. Its steps are here; if a command was interrupted, the next one begins with
the first step again. Before each step, a command stops if another one has taken over (`spark_eos.protocol.commands`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_eos.base.printable import in_lines
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import absolute
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.answer import Answer, range_as_json, range_as_text, utc
from spark_eos.ops.checkpoint_files import NewCheckpoint
from spark_eos.ops.heads import SinkHead, heads_of
from spark_eos.ops.replay_offsets import ReplayRange, as_offsets
from spark_eos.ops.replay_plan import ReplayPlan, ReplayRequest, plan
from spark_eos.protocol.commands import begin, check_still, intend, retire
from spark_eos.protocol.head import ForeachBatchWrite, Head, Successor
from spark_eos.protocol.ports import Ports


def replay(location: str, request: ReplayRequest, cluster: Cluster, settings: HadoopSettings, *, yes: bool) -> Answer:
    """Plan a replay of the checkpoint at ``location``; with ``yes``, do it. A replay to the same new checkpoint that
    was interrupted goes on as it began, where the request says nothing else.

    Exit code: 0 if it is done, or can be with ``yes``; 1 if transactions of the retired query are still open. Raises
    EosError.
    """
    checkpoint = Checkpoint(absolute(location), settings)
    planned = plan(checkpoint, cluster, request)
    if not planned.begun:
        NewCheckpoint(request.to, settings).check_free()
    left = Replay(cluster, planned, settings).run() if yes else ()
    return Answer(_as_json(planned, left, done=yes), _as_text(planned, left, done=yes), 1 if left else 0)


@dataclass(frozen=True)
class Replay:
    """The steps of a replay. They raise EosError."""

    cluster: Cluster
    plan: ReplayPlan
    settings: HadoopSettings

    def run(self) -> Sequence[str]:
        """1. Publish heads of the new query that no start gets past. 2. Write its checkpoint. 3. Retire the old query,
        unless the rows go to another topic. 4. Publish the heads from which the new query continues.

        Returns the ids of the old query's transactions that could not be aborted yet, which no start will end."""
        plan, unfinished = self.plan, self.plan.unfinished
        heads = plan.heads
        begun = {sink.key: self._intend(sink) for sink in heads}

        def still() -> None:
            for sink in plan.heads:
                check_still(self._new_ports(sink), self._new_key(sink), begun[sink.key])

        NewCheckpoint(unfinished.to, self.settings).write(NewCheckpoint.contents(plan.query, unfinished), still)
        left: Sequence[str] = ()
        if unfinished.topic is None:
            still()
            heads, left = self._retire(begun)
        for sink in reversed(heads):  # the mark for all sinks comes last
            ports = self._new_ports(sink, unfinished.group)
            begin(ports, unfinished, as_offsets(unfinished.lines), begun[sink.key])
        return left

    def _intend(self, sink: SinkHead) -> Head:
        write = None if sink.name is None else ForeachBatchWrite(self.plan.query, sink.name)
        return intend(self._new_ports(sink), self.plan.unfinished, sink.known, write)

    def _retire(self, begun: dict[str, Head]) -> tuple[Sequence[SinkHead], Sequence[str]]:
        """Retire the old query. Return its heads, and the ids of its transactions that are still open.

        Within foreachBatch, the head for all sinks is retired first: a run that publishes a new sink's head afterwards
        reads it before it decides (`sink.batch_writer`). ``begun``: the heads of the new query by the keys of the old
        one; heads of such new sinks are added."""
        first, *others = self.plan.heads
        heir = Successor(self.plan.query, self.plan.unfinished.to)
        if first.name is None:
            ended = retire(self._ports(first), first.key, heir, self.plan.passed)
            return [first], sorted(pair.id for pair in ended.left)
        left = set(retire(self._ports(first), first.key, heir, absent=first.head).left)
        others = [sink for sink in heads_of(self.cluster, self.plan.unfinished.of) if sink.name]
        for sink in others:
            if sink.key not in begun:
                begun[sink.key] = self._intend(sink)
            left |= retire(self._ports(sink), sink.key, heir).left
        return [first, *others], sorted(pair.id for pair in left)

    def _new_key(self, sink: SinkHead) -> str:
        return self.plan.query if sink.name is None else ForeachBatchWrite(self.plan.query, sink.name).query_id

    def _ports(self, sink: SinkHead) -> Ports:
        return self.cluster.ports(sink.key, prefix=sink.known.prefix)

    def _new_ports(self, sink: SinkHead, group: str | None = None) -> Ports:
        """Return the ports of the new query, which keeps the old one's prefix."""
        return self.cluster.ports(self._new_key(sink), group, sink.known.prefix)


def _as_json(planned: ReplayPlan, left: Sequence[str], *, done: bool) -> dict[str, Any]:
    unfinished = planned.unfinished
    return {
        "dry_run": not done,
        "query": unfinished.of,
        "checkpoint": unfinished.checkpoint,
        "new_query": planned.query,
        "new_checkpoint": unfinished.to,
        "retires": unfinished.topic is None,
        "topic": unfinished.topic,
        "group": unfinished.group,
        "sinks": [sink.name for sink in planned.heads if sink.name],
        "at_most_rows": sum(each.offsets.size for each in planned.ranges),
        "partitions": [_range_as_json(each) for each in planned.ranges],
        "left": list(left),
    }


def _as_text(planned: ReplayPlan, left: Sequence[str], *, done: bool) -> str:
    unfinished = planned.unfinished
    lines = [f"query {unfinished.of}, checkpoint {unfinished.checkpoint}"]
    if planned.ranges:
        again = [each for each in planned.ranges if each.offsets.size > 0]
        rows = sum(each.offsets.size for each in again)
        lines.append(f"  read again: at most {rows:,} rows of {len(again)} of {len(planned.ranges)} partition(s)")
        lines += [f"    {_range(each)}" for each in again]
    if unfinished.topic is not None:
        lines.append(f"  the new query may only write to {unfinished.topic}; the old query stays as it is")
    else:
        lines.append("  the rows are written to the same topics again; the old query can never be started again")
    if unfinished.group is not None:
        lines.append(f"  the consumer group {unfinished.group} gets the offsets from which the query continues")
    lines.append(f"  new checkpoint: {unfinished.to} (query {planned.query})")
    if left:
        lines.append(
            f"  {len(left)} transaction(s) of the old query are still open, and no start ends them: {', '.join(left)}. "
            f"Run: spark-eos recover --query {unfinished.of} --abort-only --yes"
        )
    if done:
        lines.append("  Done: start the query with the new checkpoint; 'startingOffsets' has no effect on it.")
    else:
        lines.append("  Nothing was done: add --yes.")
    return in_lines(lines)


def _range_as_json(replayed: ReplayRange) -> dict[str, Any]:
    return range_as_json(replayed.offsets) | {"first_ms": replayed.first_ms, "last_ms": replayed.last_ms}


def _range(replayed: ReplayRange) -> str:
    first_ms, last_ms = replayed.first_ms, replayed.last_ms
    when = "" if first_ms is None or last_ms is None else f"  {utc(first_ms)} to {utc(last_ms)}"
    return range_as_text(replayed.offsets) + when
