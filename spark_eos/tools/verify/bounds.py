"""The bounds between which topics are compared.

The order in which bounds are read makes the answer valid for a running job: first the rows that are *due*, then the end
of the output, then the rows that *cannot be there yet* and the end of the input. A table is opened once, when it is the
turn of its side: the end offsets of a query are in the same snapshot as the rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.errors import ConnectionFailed, stop
from spark_eos.tools.verify.comparison import Comparison
from spark_eos.tools.verify.offsets import OffsetLookup
from spark_eos.tools.verify.tables import Snapshot

#: Seconds to wait for transactions that are being ended, before the output or the group counts as held back.
PATIENCE_S = 3.0


@dataclass(frozen=True)
class PartitionBounds:
    """One partition and its bounds: ``begin`` (inclusive), ``stable`` (its last stable offset) and
    ``end`` (its high watermark), both exclusive."""

    topic: str
    partition: int
    begin: int
    stable: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class VerifiedBounds:
    """The partitions of both sides, none of a ``table``. ``due``: for each input partition, the offset below which rows
    have to be in the output; ``done``: with a group or a query, the offset from which no row may be there yet;
    ``warnings``: limits of the result."""

    inputs: tuple[PartitionBounds, ...]
    outputs: tuple[PartitionBounds, ...]
    due: tuple[int, ...]
    done: tuple[int, ...] | None
    warnings: tuple[str, ...]
    table: Snapshot | None = None


def take_bounds(comparison: Comparison) -> VerifiedBounds:
    """Read the bounds in the right order (see the module)."""
    asked = comparison.kafka, comparison.group, comparison.timeout_s
    with OffsetLookup("read_committed", *asked) as committed, OffsetLookup("read_uncommitted", *asked) as everything:
        return _Sides(comparison, committed, everything).take()


class _Sides:
    """Input and output, with a ``read_committed`` and a ``read_uncommitted`` lookup."""

    def __init__(self, comparison: Comparison, committed: OffsetLookup, everything: OffsetLookup) -> None:
        self._question, self._committed, self._all = comparison, committed, everything
        counts = committed.partitions(dict.fromkeys(comparison.inputs + comparison.outputs))
        self._input = {topic: range(counts[topic]) for topic in comparison.inputs}
        self._output = {topic: range(counts[topic]) for topic in comparison.outputs}
        self._warnings: list[str] = []
        self._without: set[tuple[str, int]] = set()  # partitions of which the group has no offset

    def take(self) -> VerifiedBounds:
        comparison, query = self._question, self._question.query
        stable = self._committed.ends(self._input)
        before = self._group_offsets() or stable
        ends = self._all.ends(self._output)
        outputs = self._bounds(self._output, self._settled(ends), ends)
        address = comparison.output_table or comparison.input_table
        table = None if address is None else address.open()
        after = self._group_offsets(newest=True)
        if table is not None and query is not None:
            of_query = table.ends(query, self._input)
            if of_query is None:
                raise stop("EOS_VERIFY_IMPOSSIBLE.query", table=address, query=query)
            before = after = of_query
        stable = self._committed.ends(self._input)
        inputs = self._bounds(self._input, stable, self._all.ends(self._input))

        due = tuple(before[p.topic][p.partition] for p in inputs)
        done = tuple(after[p.topic][p.partition] for p in inputs) if after is not None else None
        self._warnings += _warnings(comparison, inputs, outputs, due)
        without = [str(p) for p in inputs if p.end > p.begin and (p.topic, p.partition) in self._without]
        if without:
            named = ", ".join(without)
            self._warnings.append(f"the group {comparison.group} has no offset of {named}: none of their rows is due")
        for topic in self._all.compacted([*self._input, *self._output]):
            fault = "unknown, doubled or reordered" if topic in self._input else "lost"
            self._warnings.append(f"{topic} is compacted: rows that it has no longer count as {fault}")
        return VerifiedBounds(inputs, outputs, due, done, tuple(dict.fromkeys(self._warnings)), table)

    def _bounds(
        self, partitions: Mapping[str, Iterable[int]], stable: PartitionOffsets, ends: PartitionOffsets
    ) -> tuple[PartitionBounds, ...]:
        begins = self._all.begins(partitions)
        return tuple(
            PartitionBounds(topic, p, begins[topic][p], stable[topic][p], max(stable[topic][p], ends[topic][p]))
            for topic, numbers in partitions.items()
            for p in numbers
        )

    def _settled(self, ends: PartitionOffsets) -> PartitionOffsets:
        """Return the last stable offsets once all before ``ends`` is stable, or when `PATIENCE_S` is over: never past
        ``ends``."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            stable = self._committed.ends(self._output)
            stable = {topic: {p: min(at, ends[topic][p]) for p, at in of.items()} for topic, of in stable.items()}
            if stable == ends or time.monotonic() > deadline:
                return stable
            time.sleep(0.05)

    def _group_offsets(self, *, newest: bool = False) -> PartitionOffsets | None:
        """Return the committed offsets of the group for the inputs, 0 for partitions without, or None if there is no
        group. While an open transaction has newer ones, and `PATIENCE_S` is over: the older ones, or None where the
        ``newest`` are needed. Raises CommandError (EOS_VERIFY_IMPOSSIBLE) if it has none at all."""
        group = self._question.group
        if group is None:
            return None
        committed = self._all.committed(self._input)
        try:
            committed = self._committed.committed(self._input, PATIENCE_S)
        except ConnectionFailed:  # by the previous answer, a transaction is open
            self._warnings.append(
                f"an open transaction holds newer offsets of the group {group}: more rows may be due, or early"
            )
            if newest:
                return None
        if not committed:
            raise stop("EOS_VERIFY_IMPOSSIBLE.group_empty", group=group, input=", ".join(self._input))
        self._without = {(t, p) for t, of in self._input.items() for p in of if p not in committed.get(t, {})}
        return {topic: dict.fromkeys(of, 0) | committed.get(topic, {}) for topic, of in self._input.items()}


def _warnings(
    comparison: Comparison, inputs: Sequence[PartitionBounds], outputs: Sequence[PartitionBounds], due: Sequence[int]
) -> Iterable[str]:
    for p in outputs:
        if p.stable < p.end:
            yield f"an open transaction holds {p} back: readers get to {p.stable} of {p.end}"
    for p, limit in zip(inputs, due, strict=True):
        if limit > p.end:
            who = f"group {comparison.group}" if comparison.group else f"query {comparison.query}"
            yield f"the {who} is at {limit} of {p}, which ends at {p.end}"
        if p.begin > 0:
            yield f"{p} begins at {p.begin}: rows of the output that are older count as unknown"
    for p in outputs:
        if p.begin > 0:
            yield f"{p} begins at {p.begin}: rows of the input that were older there count as lost"
