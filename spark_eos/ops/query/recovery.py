"""What ``spark-eos recover`` does: what the next start of a query would do first, without Spark. A decided micro-batch
is rolled forward, an undecided one is cleared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_eos.checkpoint import Checkpoint
from spark_eos.errors import CommandError
from spark_eos.ledger.owners import Cluster, Transaction, find
from spark_eos.ops.answer import Answer
from spark_eos.ops.checkpoint.heads import OwnHead, heads_of
from spark_eos.ops.query.life import Life, look_for_life
from spark_eos.ops.tables import ago
from spark_eos.ops.transactions.report import remaining
from spark_eos.protocol.commands import closes, known_head, recover
from spark_eos.protocol.head import NOBODY, Verdict


@dataclass(frozen=True)
class Sink:
    """A head of the query, and what is to be done. ``unsettled``: transactions of the last decision of which the ledger
    does not say that they are committed. After it is done, ``lost`` are those that brokers had aborted, and ``left``
    those that are still open."""

    own: OwnHead
    aborts: Sequence[str]
    commits: Sequence[str]
    unsettled: Sequence[str]
    lost: Sequence[str] = ()
    left: Sequence[str] = ()

    @property
    def needed(self) -> bool:
        """Two-phase commit: what has not begun yet would never expire."""
        return bool(self.aborts or self.commits or self.unsettled) or (
            self.own.head.two_phase and self.own.head.run != NOBODY
        )


def recover_query(
    checkpoint: Checkpoint, cluster: Cluster, *, yes: bool, even_if_running: bool, watch_s: float, quiet_s: float
) -> Answer:
    """Exit code: 0 where it is done, or, without ``yes``, can be; 1 where something is left that it cannot do. Raises
    EosError; where somebody runs the query, CommandError (EOS_RECOVER_RUNNING), unless asked to go on."""
    query = checkpoint.query_id()
    if query is None:
        raise CommandError(
            "EOS_RECOVER_NO_QUERY",
            f"{checkpoint.location} holds no query.",
            hint="Check the path: it is the checkpointLocation, with the file 'metadata' in it.",
        )
    heads = heads_of(cluster, query)
    if not heads:
        known_head(None, query)
    sinks = plan(cluster, heads)
    life = look_for_life(checkpoint, cluster, heads, watch_s)
    needed = any(sink.needed for sink in sinks)
    if yes and needed:
        if life.running(quiet_s) and not even_if_running:
            raise _running(query, life)
        sinks = [_recovered(cluster, sink, even_if_running) if sink.needed else sink for sink in sinks]
    data = {
        "dry_run": not yes,
        "checkpoint": checkpoint.location,
        "query": query,
        "running": life.running(quiet_s),
        "sinks": [as_json(sink) for sink in sinks],
    }
    incomplete = any(sink.lost or sink.left for sink in sinks)
    return Answer(data, as_text(query, sinks, life, quiet_s, yes=yes), 1 if incomplete else 0)


def plan(cluster: Cluster, heads: Sequence[OwnHead]) -> list[Sink]:
    """What there is to do for each head. Raises EosError."""
    found: dict[str, list[Transaction]] = {}
    for transaction in find(cluster, [own.key for own in heads]):
        found.setdefault(transaction.query, []).append(transaction)
    return [_plan(own, found.get(own.key, [])) for own in heads]


def _plan(own: OwnHead, found: Sequence[Transaction]) -> Sink:
    decision = own.head.decision
    written = decision.written if decision is not None else ()
    return Sink(
        own,
        [t.id for t in found if not t.decided],
        [t.id for t in found if t.decided],
        [w.pair.id for w in written if w.verdict is None],
        lost=[w.pair.id for w in written if w.verdict is Verdict.LOST],
    )


def _recovered(cluster: Cluster, sink: Sink, even_if_running: bool) -> Sink:
    """A run that has begun, or decided, since it was looked at is alive, and is left alone."""
    check = None if even_if_running else closes(sink.own.head, decided=True)
    ended = recover(cluster.ports(sink.own.key), sink.own.key, check)
    lost = [pair.id for pair, verdict in ended.verdicts if verdict is Verdict.LOST]
    own = OwnHead(sink.own.key, sink.own.sink, ended.head)
    return Sink(own, sink.aborts, sink.commits, sink.unsettled, lost, sorted(pair.id for pair in ended.left))


def _running(query: str, life: Life) -> CommandError:
    signs = ", ".join(life.signs) or f"its last sign of life was {ago(life.last_s)}"
    return CommandError(
        "EOS_RECOVER_RUNNING",
        f"Query {query} seems to be running: {signs}.",
        hint="Nothing was done. A running query recovers by itself. If none is running, try again in a minute, or add "
        "--even-if-running: a run that is alive then stops (EOS_CLOSED_BY_OPERATOR), and its next start continues.",
        query=query,
    )


def as_json(sink: Sink) -> dict[str, Any]:
    return {
        "sink": sink.own.sink,
        "needed": sink.needed,
        "aborts": list(sink.aborts),
        "commits": list(sink.commits),
        "unsettled": list(sink.unsettled),
        "lost": list(sink.lost),
        "left": list(sink.left),
    }


def as_text(query: str, sinks: Sequence[Sink], life: Life, quiet_s: float, *, yes: bool) -> str:
    lines = [f"query {query}"]
    for sink in sinks:
        lines += _lines(sink, yes=yes)
    needed = any(sink.needed for sink in sinks)
    if not needed:
        lines.append("  Nothing needs to be done.")
    elif not yes:
        if life.running(quiet_s):
            lines.append("  It seems to be running: with --yes alone, this would be refused (--even-if-running).")
        lines.append("  Nothing was done: add --yes.")
    return "\n".join(lines)


def _lines(sink: Sink, *, yes: bool) -> list[str]:
    name = "the stream's sink" if sink.own.sink is None else f"sink {sink.own.sink or '(all)'}"
    head, last = sink.own.head, sink.own.head.decision
    lines = []
    if sink.needed:
        batch = "" if last is None else f" of micro-batch {last.batch}"
        aborted, commit = ("aborted", "committed") if yes else ("would abort", "would commit")
        lines.append(f"  {name}: {aborted} {len(sink.aborts)} undecided transaction(s)")
        lines += [f"    {each}" for each in sink.aborts]
        lines.append(
            f"  {name}: {commit} {len(sink.unsettled)} decided transaction(s){batch}, {len(sink.commits)} open"
        )
        lines += [f"    {each}" for each in sink.commits]
        if head.run != NOBODY and not yes:
            lines.append(f"  {name}: would first close run {head.run}; the next start of the query goes on")
    return lines + [f"  {name}: {line}" for line in remaining(sink.left, sink.lost)]
