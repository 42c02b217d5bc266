"""The state of a query (`QueryState`), and the first action of its next start. Does no I/O:
`spark_eos.ops.query_states` reads the state, `spark_eos.ops.status` prints it, and `spark_eos.ops.recover` plans by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.checkpoint.offset_log import BUILT_IN, OURS
from spark_eos.ledger.owners import Transaction, TransactionPart
from spark_eos.ops.heads import SinkHead
from spark_eos.ops.table_state import TableState
from spark_eos.pipelines.tables.micro_batch import BatchPresence
from spark_eos.protocol.checks import is_visible, stop_of
from spark_eos.protocol.head import NOBODY, BatchWrite, Head
from spark_eos.protocol.status import Start, Status, status

#: By the kind of a source, the condition of its error for offsets that are gone; Spark's own is of its connector.
_LOSSES = {OURS: "EOS_SOURCE_DATA_LOSS", BUILT_IN: "KAFKA_DATA_LOSS"}


@dataclass(frozen=True)
class ReadPartition:
    """A partition of the input: where the newest planned micro-batch and the newest committed one end, and the log's
    first offset and end; None where that is not known."""

    topic: str
    partition: int
    planned: int
    committed: int | None
    begin: int | None
    end: int | None

    @property
    def read_up_to(self) -> int:
        """The offset from which a start reads."""
        return self.planned if self.committed is None else self.committed

    @property
    def gone(self) -> bool:
        """True if the log begins behind that offset."""
        return self.begin is not None and self.begin > self.read_up_to


@dataclass(frozen=True)
class CheckpointState:
    """The content of a checkpoint. ``planned``, ``committed``: the micro-batches in its offset log and commit log;
    ``sources``: the kind of each source; ``recreated_topics``: topics whose id is not the one in the offset log;
    ``elsewhere``: topics of another cluster than the ledger's, whose logs were not read; ``left``: the offset at which
    the query continues if it reads a topic or partition again that it no longer reads."""

    location: str
    planned: Sequence[int] = ()
    committed: Sequence[int] = ()
    stateful: bool = False
    sources: Sequence[str] = ()
    partitions: Sequence[ReadPartition] = ()
    recreated_topics: Sequence[str] = ()
    elsewhere: Sequence[str] = ()
    left: PartitionOffsets = field(default_factory=dict)

    @property
    def runs_again(self) -> bool:
        """True if a start begins with a micro-batch that is planned, and not committed."""
        return bool(self.planned) and (not self.committed or self.planned[-1] > self.committed[-1])

    @property
    def next_batch(self) -> int:
        """The micro-batch with which a start begins."""
        return self.planned[-1] + (not self.runs_again) if self.planned else 0

    @property
    def lag(self) -> int | None:
        """Offsets from the end of the last committed micro-batch, or from where the log begins, to the last stable
        offset, of all partitions; None where the query has read no topic, or a topic is gone, another one or
        elsewhere."""
        known = [p for p in self.partitions if p.end is not None and p.topic not in self.recreated_topics]
        lags = [max(0, (p.end or 0) - max(p.committed or 0, p.begin or 0)) for p in known]
        return sum(lags) if lags and len(lags) == len(self.partitions) else None

    @property
    def losses(self) -> list[str]:
        """Sentences on input for which the source stops, unless failOnDataLoss is false: a checkpoint does not tell."""
        gone = [p for p in self.partitions if p.gone and p.topic not in self.recreated_topics]
        return [
            *(f"{topic} was deleted or recreated since it was read" for topic in self.recreated_topics),
            *(
                f"{p.topic}-{p.partition} is read up to offset {p.read_up_to}, and its log begins at {p.begin}"
                for p in gone
            ),
        ]

    @property
    def loss(self) -> str:
        """The condition of the error by which the source stops for `losses`; where there are several, of each kind."""
        return " or ".join(name for kind, name in _LOSSES.items() if kind in self.sources)


@dataclass(frozen=True)
class Liveness:
    """Signs of a run. A run that waits for rows gives none, so that "no sign" does not mean "no run".

    ``signs``: changes between two looks, in a few words; ``last_s``: seconds since the newest sign before that, None if
    there is none; ``closed``: the last run of each sink is closed, or there was none; ``quiet_s``: a sign that is
    younger counts.
    """

    signs: Sequence[str] = ()
    last_s: float | None = None
    closed: bool = False
    quiet_s: float = 60.0

    @property
    def running(self) -> bool | None:
        """True if the query is running; None where that cannot be known."""
        if self.signs or (not self.closed and self.last_s is not None and self.last_s < self.quiet_s):
            return True
        return False if self.closed else None


@dataclass(frozen=True)
class QueryState:
    """A query. ``query``: its id, None before its first start; ``sinks``: the newest head of each sink, by name;
    ``open``: its open transactions; ``parts``: their partitions as the leaders have them, by transactional id, where
    these were looked up; ``checkpoint``: None where none was named; ``unread``: why the ledger could not be read;
    ``table``: of a query to a table, which has no sinks in the ledger."""

    query: str | None
    sinks: Sequence[SinkHead] = ()
    open: Sequence[Transaction] = ()
    liveness: Liveness = field(default_factory=Liveness)
    checkpoint: CheckpointState | None = None
    parts: Mapping[str, Sequence[TransactionPart]] = field(default_factory=dict)
    unread: str = ""
    table: TableState | None = None

    def start(self, sink: str | None = None) -> Start:
        """Return the next start, as far as it is known without the query's options."""
        batch = None if self.checkpoint is None else self.checkpoint.next_batch
        return Start(batch, in_foreach_batch=sink is not None)

    def status(self, sink: SinkHead) -> Status | None:
        """Predict how the next start treats the head of a sink; None where the head cannot be read."""
        return None if sink.head is None else status(sink.head, self.start(sink.name))

    @property
    def stops_with(self) -> tuple[SinkHead, Status] | None:
        """The sink by whose head a start stops, and why. None where it does not stop, or that is not known."""
        for sink in self.sinks:
            judged = self.status(sink)
            # Only the checkpoint shows whether Spark has passed the micro-batch that was given up.
            if judged is not None and judged.stops and (judged is not Status.GIVEN_UP or self.checkpoint is not None):
                return sink, judged
        return None

    @property
    def unknown(self) -> str:
        """Say why the next start's action is unknown, where only the ledger's record or the table would tell; empty
        where it is known. A query without a record may never have had one, as it writes to another kind of sink."""
        if self.table is not None:
            problem = self.table.problem
            return f"{self.table.name} cannot be asked: {problem} {_STORAGE}" if problem else ""
        judged = status(None, self.start())
        if self.sinks or self.unread or not judged.stops:
            return ""
        at = self.checkpoint or CheckpointState("")
        how = _UNFINISHED_ELSEWHERE if at.runs_again else _FINISHED_ELSEWHERE
        return _NO_RECORD.format(batch=at.next_batch, condition=judged.value) + how.format(batch=at.next_batch)

    @property
    def next_action(self) -> str | None:
        """Describe the next start's action, in a sentence without its subject; None where it is not known."""
        stop, at = self.stops_with, self.checkpoint
        if stop is not None:
            sink, judged = stop
            name = f"{name_of(sink)}: " if sink.name else ""
            return f"stops: {name}{stop_of(judged, sink.head, self.start(sink.name))}"
        if self.table is not None and self.table.stop is not None:
            return f"stops: {self.table.stop}"
        if at is None or self.unread or self.unknown or any(sink.head is None for sink in self.sinks):
            return None
        stops = f", unless its source stops ({at.loss}), as it lacks rows that were not read" if at.losses else ""
        return self._step(at) + stops

    def _step(self, at: CheckpointState) -> str:
        """Return the first micro-batch of a start that its heads do not stop, and the steps for an earlier one."""
        if self.query is None or not at.planned:
            return "begins a new query, with micro-batch 0"
        step = f"{'runs' if at.runs_again else 'plans'} micro-batch {at.next_batch}{' again' if at.runs_again else ''}"
        if any(sink.name is not None for sink in self.sinks):
            return f"{step}; each sink within foreachBatch compares its rows with what it has decided before"
        if self.table is not None:
            return f"{step}{_IN_TABLE[self.table.again]}"
        if not self.sinks:
            return f"{step}; the ledger topic has no decision of the query yet"
        sink = self.sinks[0]  # of the stream
        judged = self.status(sink)
        if judged is Status.REPAIRS:
            return f"{step}, and writes the rows of the lost transactions again"
        if judged is Status.COMPLETES:
            return f"{step}: it is decided already, so its transactions are committed, and no row is written again"
        last = None if sink.head is None else sink.head.decision
        return step if last is None or is_visible(last) else f"commits micro-batch {last.batch}, then {step}"

    @property
    def problems(self) -> list[str]:
        """Return sentences on problems that a start of the query, or a command, has to solve."""
        problems = [f"the ledger cannot be read: {self.unread}"] if self.unread else []
        stop = self.stops_with
        # A retired query needs no attention until it is to be started.
        if stop is not None and (self.checkpoint is not None or stop[1] in _UNFINISHED):
            problems.append(f"the next start {self.next_action}")
        if self.table is not None and self.table.stop is not None:
            problems.append(f"the next start {self.next_action}")
        if self.checkpoint is not None:
            stops = f"the source stops for that ({self.checkpoint.loss}), unless failOnDataLoss is false"
            problems += [f"{loss}: {stops}" for loss in self.checkpoint.losses]
        for sink in self.sinks:
            if sink.head is None:
                problems.append(f"{name_of(sink)}: its record in the ledger topic cannot be read: {sink.problem}")
            elif (stop is None or sink is not stop[0]) and status(sink.head, Start(None)) in _WAITING_FOR_START:
                problems.append(f"{name_of(sink)}: {describe(sink.head)}")
        if self.liveness.running is not True and self.open:
            problems.append(
                f"{len(self.open)} open transaction(s) hold back read_committed consumers, and there is no sign of a "
                "run that would end them"
            )
        return problems


_STORAGE = "The option --storage, before the command, takes settings of its store (fs.…) and its catalog (catalog.…)."
_NO_RECORD = (
    "the ledger topic has no record of this query, and its checkpoint is at micro-batch {batch}. A query to tables or "
    "files needs none, and goes on: there is nothing to do. If it writes to topics by eos-kafka, the next start stops "
    "({condition}): if another sink wrote until now"
)
_FINISHED_ELSEWHERE = ", set the option 'ledger.begin' to {batch} to continue here"
_UNFINISHED_ELSEWHERE = (
    " and has not finished that micro-batch, start the query once more with that sink, unchanged, with "
    "trigger(availableNow=True); if a start with this sink has planned it, and stopped with this error, set the option "
    "'ledger.begin' to {batch}"
)
#: The outcome of a micro-batch that is run again, by whether the table has it.
_IN_TABLE = {
    None: "",
    BatchPresence.NEW: ": the table does not have it yet",
    BatchPresence.THERE: ": the table has it already, so no row is written again",
    BatchPresence.UNCLEAR: ": the table has one with this number, and if its offsets are the same, no row is added",
}
_UNFINISHED = (Status.DROP_UNFINISHED, Status.REPLAY_UNFINISHED)
#: There are rows that only a start of the query writes.
_WAITING_FOR_START = (Status.GIVEN_UP, Status.REPAIRS)


def name_of(sink: SinkHead) -> str:
    """Return the sink as it is called in text."""
    return "sink" if sink.name is None else f"sink {sink.name or 'all'}"


def describe(head: Head) -> str:
    """Return the state of a sink by its head, in a few words."""
    judged, last, marks = status(head, Start(None)), head.decision, head.marks
    if judged is Status.RETIRED and marks.successor is not None:
        return f"retired, replaced by query {marks.successor.query}"
    words = {
        Status.DROP_UNFINISHED: "drop of a micro-batch not finished",
        Status.REPLAY_UNFINISHED: "replay not finished",
        Status.ROWS_MISSING: "rows of a committed transaction are missing",
        Status.GIVEN_UP: f"the write of micro-batch {head.unwritten} was given up",
        Status.REPAIRS: f"{len(last.lost) if last else 0} transaction(s) lost; the next start writes their rows again",
    }
    if judged in words:
        return words[judged]
    if isinstance(head.write, BatchWrite) and last is not None and not last.written:
        return "completed"
    return "closed" if head.run == NOBODY else "open"
