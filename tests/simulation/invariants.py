"""What must hold, watched at each step, and the reader that watches it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from spark_eos.errors import EosError
from spark_eos.pipelines.copy.ranges import copied_by, ranges_of
from spark_eos.pipelines.files.notes import digest_of, noted_by
from spark_eos.protocol.head import NOBODY, Decision, Head, Pair, Verdict
from spark_eos.protocol.head_codec import decode
from spark_eos.protocol.names import is_name_of, ledger_name, parse_task_name
from spark_eos.protocol.ports import State

from . import traces
from .coordinator import Cluster, Entry
from .driver import Driver
from .excused import Losses
from .faults import Strike
from .ledger import GROUP, LEDGER_TOPIC, PREFIX
from .partition_log import PartitionLog, Place, Record
from .plan import NOTES, SOURCE, TOPIC_PARTITIONS, digest, noted_after, place_of, rows_in
from .spark import Query
from .world import WAITS, Violation

NOT_LOST = "no row is lost"
NOT_DOUBLED = "no row is doubled"
IN_ORDER = "rows keep their order"
DECIDED = "only decided transactions are committed"
ONE_TRANSACTION = "a transactional id, producer id and epoch name one transaction"
ONE_DECISION = "a micro-batch is decided once"
OFFSETS = "offsets go with the rows"
NEVER_ABORTED = "a decided transaction is never aborted by us"
LEFT_ALONE = "an id is not initialised while a decision waits for it"
TRUE_VERDICTS = "verdicts are true"
OWN_GENERATION = "each run has a generation of its own"
TRUE_STOPS = "a stop tells the truth"
NOT_REWRITTEN = "what a reader has seen is not rewritten"
NOTES_GO_ALONG = "notes go with the decision"
EXTRAS_GO_ALONG = "an extra goes with its own decision"
NEIGHBOURS = "queries leave each other alone"
SAME_PARTITION = "a key stays in its partition"
TOPICS_KNOWN = "a head names every topic that its query has written to"
ONE_TOPIC = "a micro-batch is in the topic of the run that decided it"


@dataclass
class Watch:
    """A read_committed reader of every partition, and the books of what was decided, of one query.

    ``fates``: what became of each transaction. ``may_reopen``: those that EndTxn has ended without a new epoch, so that
    one without rows may follow under the same pair. ``decided``: pair → the decision that named it first.
    ``given``: the offset that each group was given last. ``deciders``: the run that decided a batch last.
    ``lost``: rows that Kafka itself has lost.
    ``ledger_lost``: the topic was deleted, or its newest records, and with it what later decisions could be compared
    with. ``forgotten``: transactions of the decisions that were the last ones in ledgers that are lost. ``excused``:
    nobody can tell that there was a newer decision.
    """

    cluster: Cluster
    of: Query
    fates: dict[Pair, bool] = field(default_factory=dict)
    may_reopen: set[Pair] = field(default_factory=set)
    decided: dict[Pair, Decision] = field(default_factory=dict)
    heads: list[Head] = field(default_factory=list)
    seen: dict[int, Pair] = field(default_factory=dict)
    given: dict[str, int] = field(default_factory=dict)
    deciders: dict[int, str] = field(default_factory=dict)
    ledger_lost: bool = False
    forgotten: set[Pair] = field(default_factory=set)
    excused: bool = False
    lost: Losses = field(default_factory=Losses)
    _published_last: Head | None = None
    _lost_last: Head | None = None
    _told_at: int | None = None
    _values: list[bytes] = field(default_factory=list)
    _topics: dict[int, set[str]] = field(default_factory=dict)
    _read: dict[Place, int] = field(default_factory=dict)
    _copied: dict[int, set[int]] = field(default_factory=dict)
    _wrote: set[str] = field(default_factory=set)
    _deleted: set[Place] = field(default_factory=set)
    _names: dict[tuple[int, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan, self.query, self.is_job = self.of.plan, self.of.id, bool(self.of.plan.runs)

    # A transaction's fate is sealed

    def decider(self, batch: int) -> str:
        """The run that decided it last; empty where nobody knows."""
        return self.deciders.get(batch, "")

    def ended(self, name: str, before: Entry, after: Entry, cause: str) -> None:
        if self.excused:
            return
        pair = Pair(name, before.producer_id, before.epoch)
        commit = after.state is State.PREPARE_COMMIT
        if name.startswith(ledger_name(PREFIX, self.query)) and commit:
            self._publish(before.producer_id)
        if parse_task_name(PREFIX, self.query, name) is None or not after.places:
            return
        if commit and pair not in self.decided:
            raise Violation(DECIDED, f"{pair} was committed by {cause}, and no decision names it")
        if pair in self.may_reopen and (self.fates[pair] or not commit):
            return  # of what was committed then, no row can be in it that is new (NOT_DOUBLED)
        logs = (self.cluster.log(place) for place in after.places)
        self.lost.ended(pair, before.started_ms, self.of.world.acting if commit else None, logs)
        ours = cause.startswith(("EndTxn", "InitProducerId by cleaner"))
        # What is broken may be aborted, as its rows are written again; so they are once the ledger was lost.
        if not commit and pair in self.decided and ours and not self.ledger_lost and self._is_whole(pair, after):
            raise Violation(NEVER_ABORTED, f"{pair} was aborted by {cause}")
        # Attempts of several stage attempts are about then, which Spark lets nobody tell apart.
        taken = cause.startswith("InitProducerId by task") and not self.of.stage_retried
        if not commit and pair in self.decided and taken:
            raise Violation(LEFT_ALONE, f"{pair} was aborted by {cause}")
        if self.fates.setdefault(pair, commit) is not commit:
            raise Violation(ONE_TRANSACTION, f"{pair} was ended twice, by {cause} at last")
        if after.epoch == before.epoch:
            self.may_reopen.add(pair)

    def _is_whole(self, pair: Pair, entry: Entry) -> bool:
        """Whether it has lost no row in any of its partitions."""
        producer = pair.producer_id, pair.epoch
        if producer in self.lost.cut_ms:
            return False
        logs = [self.cluster.log(place) for place in entry.places]
        if any((r.producer_id, r.epoch) == producer and r.visible is False for log in logs for r in log.records):
            return False  # aborted there, and maybe begun again
        return all(log.is_open(*producer) and log.open[pair.producer_id] >= log.begin for log in logs)

    def _publish(self, producer_id: int) -> None:
        """The ledger's transaction is committed: what it holds is durable, markers or not."""
        logs = [log for place, log in self.cluster.logs.items() if place[0] == LEDGER_TOPIC]
        open_ones = [record.payload for log in logs for record in log.records if record.visible is None]
        values = [value for key, value in open_ones if key == self.query and value is not None]
        given = (r for r in self.cluster.log(GROUP).records if r.visible is None and r.producer_id == producer_id)
        gives = [record.payload for record in given if not record.control]
        for group, offsets in gives:
            self.given[group] = offsets["source"]["0"]
        if not values:
            return  # a partition was added late, no record with it
        value = values[-1]
        head, last = decode(value), self.heads[-1] if self.heads else None
        self._check_given(head, last, given=bool(gives))
        self.heads.append(head)
        self._published_last = head
        self._values.append(value)
        if self.ledger_lost:
            self._note(head)
            return
        if last is not None and head.generation != last.generation + (head.run != last.run or head.run == NOBODY):
            raise Violation(OWN_GENERATION, f"{head.run} has {head.generation}, {last.run} {last.generation}")
        if head.decision is not None:
            self._check_extra(head.run, head.decision)
            self._decide(head.run, head.decision, last.decision if last is not None else None)
            self._wrote |= {probe.topic for w in head.decision.written for probe in w.begins}
        if not self._wrote <= {*head.topics}:
            raise Violation(TOPICS_KNOWN, f"{sorted(self._wrote)} were written to, and {head.topics} are known")

    def cut_off(self, *, forgotten: bool) -> None:
        """The ledger has lost its newest records. Whoever takes it next must notice a decision that is gone if the
        coordinators know of one, by a later run, or by what the ledger's own id has committed last. ``forgotten``: they
        knew of tasks for a week, which has passed."""
        logs = [log for place, log in self.cluster.logs.items() if place[0] == LEDGER_TOPIC]
        left = {record.payload[1] for log in logs for record in log.records[log.begin :] if not record.control}
        kept = [n for n, value in enumerate(self._values) if value in left]
        lost = [head for n, head in enumerate(self.heads) if n not in kept]
        self.heads, self._values = [self.heads[n] for n in kept], [self._values[n] for n in kept]
        self.ledger_lost = True
        decisions = [head.decision for head in lost if head.decision is not None]
        if not self.heads:
            self.lose_ledger()
            self.excused = self.excused or (forgotten and bool(decisions))
            return
        last = self.heads[-1].decision
        if any(last is None or decision.pairs != last.pairs for decision in decisions) and not traces.by_tasks(
            *self._newest
        ):
            self.excused = self.excused or not traces.by_ledger(*self._newest)
            self._told_at = self.of.world.step

    def taken(self, name: str) -> None:
        """Somebody takes an id. That of the ledger tells nothing after that: by who has looked after the loss, it must
        have been asked before."""
        if self._told_at is None or name != ledger_name(PREFIX, self.query):
            return
        actor = self.of.world.acting
        looked = actor is not None and actor.looked >= self._told_at
        if not looked and traces.by_ledger(*self._newest) and not traces.by_tasks(*self._newest):
            self.excused = True

    @property
    def _newest(self) -> tuple[Cluster, str, Head]:
        return self.cluster, self.query, self.heads[-1]

    def lose_ledger(self) -> None:
        """The heads are gone. Where that is so for the second time, and the micro-batch of ``ledger.begin`` was decided
        since the first, a start that has it still in its options may begin there once more; also where Spark has
        committed it, as the start may have planned it before."""
        self.ledger_lost = True
        last = self._lost_last = self._published_last
        if last is not None and last.decision is not None:
            self.forgotten |= last.decision.pairs
        self.excused = self.excused or self.of.begin_at in self.deciders

    def _note(self, head: Head) -> None:
        """After the loss of the ledger, what matters of a decision is who made it, and whose rows may be visible."""
        new = head.decision
        if new is not None and not new.pairs <= self.decided.keys():
            self.deciders[new.batch] = head.run
        for pair in new.pairs if new is not None else ():
            self.decided.setdefault(pair, new)
        # A process may have kept the newest head, and gone on from it. What was begun anew knows nothing of it, and
        # nor does what follows that, if it is a late task of a run that did.
        lost, self._lost_last = self._lost_last, None
        if lost is not None and new is not None and not new.is_assumed and _follows(head, lost):
            self.forgotten -= lost.decision.pairs if lost.decision is not None else frozenset()

    def _decide(self, run: str, new: Decision, last: Decision | None) -> None:
        known = {} if last is None else {w.pair: w.verdict for w in last.written}
        for w in new.written:
            # What a marker that is lost leaves open may be aborted later: a verdict is judged when it is given.
            is_new = w.verdict not in (None, known.get(w.pair))
            if is_new and self._fate(w.pair) is not (w.verdict is Verdict.COMMITTED):
                raise Violation(TRUE_VERDICTS, f"{w.pair} is {w.verdict.value}, by the log {self.fates.get(w.pair)}")
        if last is not None and (new.batch, new.rev) == (last.batch, last.rev):
            if self.is_job and not new.written:
                return self._check_complete(last)
            if {w.pair for w in new.written} != {w.pair for w in last.written}:
                raise Violation(ONE_DECISION, f"batch {new.batch} revision {new.rev} was decided again")
            return
        if last is not None and new.batch == last.batch:
            gone = last.pairs - new.pairs
            if new.rev != last.rev + 1 or any(self._fate(pair) is not False for pair in gone):
                fates = {pair: self.fates.get(pair) for pair in gone}
                raise Violation(NOT_REWRITTEN, f"batch {new.batch} revision {new.rev} replaces {fates}")
        if new.batch != (last.batch + 1 if last is not None else 0) and not (last and new.batch == last.batch):
            raise Violation(ONE_DECISION, f"batch {new.batch} was decided after {last and last.batch}")
        for pair in new.pairs:
            self.decided.setdefault(pair, new)
        self.deciders[new.batch] = run

    def _fate(self, pair: Pair) -> bool | None:
        """Whether it was committed. What an operator has aborted in each of its partitions counts as lost, whatever its
        coordinator has done with it, or will do: who goes by the log alone writes its rows again, which nobody has
        seen."""
        logs = (log for place, log in self.cluster.logs.items() if place[0] in self.plan.outputs)
        own = (record for log in logs for record in log.records if not record.control)
        seen = [r.visible for r in own if (r.producer_id, r.epoch) == (pair.producer_id, pair.epoch)]
        return False if seen and all(visible is False for visible in seen) else self.fates.get(pair)

    def _check_complete(self, decision: Decision) -> None:
        left = [pair for pair in decision.pairs if self.fates.get(pair) is not True]
        if left:
            raise Violation(TRUE_VERDICTS, f"the job is complete, but not committed: {left}")

    def found(self, error: EosError) -> None:
        """Somebody has just raised this error. What is said of a decision to come is judged now: the run that made it
        may still commit it before the one that was told stops."""
        if error.condition == "EOS_UNAUTHORIZED" and error.parameters.get("request") == "abort":
            raise Violation(TRUE_STOPS, f"no row is at stake: {error.message}")
        broken = error.parameters.get("transactional_id") if error.condition == "EOS_DECISION_BROKEN" else None
        if self.excused or broken is None:
            return
        if any(pair.id == broken and self._fate(pair) for pair in self._last_pairs()):
            raise Violation(TRUE_STOPS, f"{broken} has been committed: {error.message}")

    def stopped(self, error: EosError, driver: Driver) -> None:
        """A driver ended with this error."""
        if self.excused:
            return
        passed_ms, topic = self.of.world.now - driver.began_ms, driver.topic
        if error.entry == "EOS_OUTCOME_UNCLEAR.rows" and passed_ms < sum(WAITS):
            raise Violation(TRUE_STOPS, f"in this run, nobody has waited for them: {error.message}")
        if error.condition in self._of_losses() and not self.ledger_lost:
            raise Violation(TRUE_STOPS, f"the ledger has lost nothing: {error.message}")
        blamed = error.parameters.get("transactional_id")
        if blamed is not None and not is_name_of(PREFIX, self.query, blamed):
            raise Violation(NEIGHBOURS, f"{self.query} blames {blamed}: {error.message}")
        expired = error.parameters.get("transactional_id") if error.condition == "EOS_TRANSACTION_EXPIRED" else None
        if expired is not None and not any(pair.id == expired and not done for pair, done in self.fates.items()):
            raise Violation(TRUE_STOPS, f"{expired} has not expired: {error.message}")
        if error.condition == "EOS_ROWS_MISSING" and not self._are_missing(error):
            raise Violation(TRUE_STOPS, f"the rows are there: {error.message}")
        if error.condition == "EOS_OUTCOME_GONE" and self._is_there(error):
            raise Violation(TRUE_STOPS, f"the log has it: {error.message}")
        if error.condition == "EOS_REPLAY_DIVERGED" and self._is_as_decided(error.parameters["batch"], topic):
            raise Violation(TRUE_STOPS, f"the plan is deterministic: {error.message}")
        conditions = ("EOS_CHECKPOINT_BEHIND", "EOS_REPLAY_DIVERGED")
        if error.condition in conditions and "decided rows are visible" in error.hint:
            self._check_visible(error)

    def _of_losses(self) -> tuple[str, ...]:
        """Conditions that only a loss of the ledger explains. A leader that was replaced, and has not noticed for
        minutes, may know of no head."""
        stale = self.of.world.struck[Strike.LEADER_STALE]
        return ("EOS_LEDGER_TRUNCATED",) if stale else ("EOS_LEDGER_TRUNCATED", "EOS_LEDGER_HEAD_LOST")

    def _are_missing(self, error: EosError) -> bool:
        """Whether a transaction was committed, and aborted where an error says: by the log, or before an unclean
        election took the marker, or the rows, too. Of a topic that is gone, nobody can tell any more."""
        said = error.parameters
        place, offset = (said["topic"], said["partition"]), said["offset"]
        log = self.cluster.logs.get(place)
        done = [pair for pair, done in self.fates.items() if pair.id == said["transactional_id"] and done]
        record = log.records[offset] if log is not None and offset < log.end and place not in self._deleted else None
        is_own = record is not None and any(self._is_of(record, pair) for pair in done)
        return bool(done) and (not is_own or record.visible is False or offset in log.once_aborted)

    def _is_there(self, error: EosError) -> bool:
        """Whether a partition that was never deleted has the record of which an error says that it is gone."""
        said = error.parameters
        topic, _, partition = said.get("place", "").rpartition("-")
        place = (topic, int(partition)) if topic else (said["topic"], said["partition"])
        log, offset = self.cluster.logs.get(place), said.get("offset")
        if log is None or offset is None or place in self._deleted or said.get("cannot", "still has") != "still has":
            return False
        record = log.records[offset] if log.begin <= offset < log.end else None
        owners = [pair for pair in self.fates if pair.id == said["transactional_id"]]
        is_row = record is not None and not record.control  # and no marker, of an end that came after the loss
        return is_row and any(self._is_of(record, pair) for pair in owners)

    def _is_as_decided(self, batch: int, topic: str) -> bool:
        """Whether what the checkpoint has of a micro-batch is what was decided last."""
        last = self._last(batch)
        start, end = self.of.offsets[batch]
        rows = len(range(start, end)), digest(list(range(start, end)), last.digest_by, topic)
        given = last.offsets is None or last.offsets["source"]["0"] == end
        return given and rows == (last.rows, last.digest)

    def _last(self, batch: int) -> Decision:
        """The newest decision on a micro-batch, which a stop tells of."""
        decisions = (h.decision for h in reversed(self.heads) if h.decision is not None and h.decision.batch == batch)
        found = next(decisions, None)
        if found is None:
            raise Violation(TRUE_STOPS, f"micro-batch {batch} was never decided")
        return found

    def _last_pairs(self) -> frozenset[Pair]:
        decision = self.heads[-1].decision if self.heads else None
        return decision.pairs if decision is not None else frozenset()

    def _check_visible(self, error: EosError) -> None:
        """Somebody may begin with a new checkpoint now, which settles nothing of the old one."""
        batch = error.parameters.get("decided", error.parameters["batch"])
        last = self._last(batch)
        left = [pair for pair in last.pairs if self.fates.get(pair) is not True]
        if left:
            raise Violation(TRUE_STOPS, f"not committed: {left}, but a new checkpoint is recommended: {error.message}")

    def logged(self, group: str | None, end: int) -> None:
        """Spark has noted that a micro-batch is committed, by a driver with this group."""
        left_out = self.cluster.leaders.heard_since(SOURCE[0]) > 0
        if not self.excused and group is not None and not left_out and self.given.get(group, -1) < end:
            raise Violation(OFFSETS, f"{group} has {self.given.get(group)}, and the batch ends at {end}")

    def _check_given(self, head: Head, last: Head | None, *, given: bool) -> None:
        """A decision has the group's offsets, unless the cluster does not have their topic, or has not had it since the
        run began."""
        decision, before = head.decision, last and last.decision
        if decision is None or decision.group is None or given or decision.offsets is None:
            return
        is_new = before is None or (before.batch, before.group) != (decision.batch, decision.group)
        if self.ledger_lost and self.given.get(decision.group) == decision.offsets["source"]["0"]:
            return  # only the ledger has lost it
        began = next((driver.began_ms for driver in self.of.drivers if driver.run == head.run), None)
        if is_new and began is not None and began >= self.cluster.leaders.heard_since(SOURCE[0]):
            raise Violation(OFFSETS, f"{decision.group} is not given those of batch {decision.batch}")

    # A reader may go on

    def marked(self, place: Place, log: PartitionLog) -> None:
        if self.excused:
            return
        if place == GROUP and not self.ledger_lost:
            self._read_offsets(log)
        if place == NOTES and self.plan.notes and not self.ledger_lost:
            self._read_notes(log)
        if place[0] in self.plan.outputs:
            self._read_rows(place, log)

    def _read_rows(self, place: Place, log: PartitionLog) -> None:
        for offset in range(max(log.begin, self._read.get(place, 0)), log.stable):
            record = log.records[offset]
            if self._is_own(place, record):
                batch, row, _ = record.payload
                self._see(record.producer_id, record.epoch, batch, row)
                if not self.ledger_lost and place != place_of(row, self.heads[0].partitioner, place[0]):
                    raise Violation(SAME_PARTITION, f"row {row} is in {place}")
                self._topics.setdefault(batch, set()).add(place[0])
        self._read[place] = max(self._read.get(place, 0), log.stable)

    def _is_own(self, place: Place, record: Record) -> bool:
        """Whether it is a visible row of this query, and its transaction was ended once in that partition."""
        reopened = (place, (record.producer_id, record.epoch)) in self.lost.reopened
        return bool(record.visible) and record.payload[2] == self.query and not reopened

    def _see(self, producer_id: int, epoch: int, batch: int, row: int) -> None:
        before = self.seen.get(row)
        if before is not None and not self.lost.is_reopened(before):
            raise Violation(NOT_DOUBLED, f"row {row} of batch {batch}: {before} and {producer_id}, {epoch}")
        self.seen[row] = Pair("", producer_id, epoch)

    def _read_offsets(self, log: PartitionLog) -> None:
        for record in log.records[self._read.get(GROUP, 0) : log.stable]:
            last = self.heads[-1].decision if self.heads else None
            own = record.visible and record.payload[0] in self.plan.groups
            if own and (last is None or last.offsets != record.payload[1]):
                raise Violation(OFFSETS, f"the group is at {record.payload[1]}, not {last and last.offsets}")
        self._read[GROUP] = log.stable

    def _read_notes(self, log: PartitionLog) -> None:
        last = self.heads[-1].decision if self.heads else None
        seen = [record.payload[0] for record in log.records[: log.stable] if record.visible]
        early = [batch for batch in seen if last is None or int(batch) > last.batch]
        if early or len(seen) > len({*seen}):
            raise Violation(NOTES_GO_ALONG, f"notes of {seen}, but the last decision is {last and last.batch}")

    # At the end

    def conclude(self, query: Query) -> None:
        """Everything that was begun is at rest."""
        if query.over or self.excused:
            return
        total = sum(query.plan.rows)
        missing = set(range(total)) - self.seen.keys() - self._behind_others() - self.lost.excused(self.fates)
        missing -= self._told_nobody(query.begin_at)
        if missing:
            raise Violation(NOT_LOST, f"rows {sorted(missing)} of {query.offsets}")
        for topic in self.plan.outputs:
            for partition in range(TOPIC_PARTITIONS):
                self._check_order((topic, partition))
        if not self.ledger_lost:
            self._check_topics()
        if query.plan.notes and not self.ledger_lost:
            self._check_notes()
        log = self.cluster.log(GROUP)
        own = [r for r in log.records if r.visible and r.payload[0] in self.plan.groups]
        given = [((r.producer_id, r.epoch), r.payload[1]["source"]["0"]) for r in own]
        offsets = [end for _, end in dict.fromkeys(given)]  # without those that were sent again
        ends = [] if self.plan.groups == (None,) else [end for _, end in sorted(query.offsets.values())]
        # With the ledger, a decision on no rows may be lost, unnoticed, and made again: no row and no offset differs.
        each_once = len(query.plan.groups) == 1 and not self.ledger_lost
        as_batches = offsets == ends if each_once else offsets == sorted(offsets) and {*offsets} <= {*ends}
        if self.cluster.leaders.heard_since(SOURCE[0]):  # those of some were left out
            as_batches = offsets == sorted(offsets) and {*offsets} <= {*ends}
        if self.ledger_lost and query.lost_files:  # what was planned anew may end elsewhere
            as_batches = offsets == sorted(offsets)
        if log.stable != log.end or not as_batches:
            raise Violation(OFFSETS, f"the group went through {offsets}, the batches through {query.offsets}")

    def deleted(self, place: Place, log: PartitionLog) -> None:
        """An output partition is deleted, with its topic; what comes in its place is read from the beginning."""
        self._read.pop(place, None)
        self._deleted.add(place)
        if place[0] in self.plan.outputs:
            self.lost.deleted_with_topic([*self._own(log.records[log.begin :])])

    def cut(self, place: Place, log: PartitionLog, lost: Collection[Record]) -> None:
        """An output partition has lost its newest records; a reader goes on at its new end."""
        self._read[place] = min(self._read.get(place, 0), log.end)
        self.lost.cut(place, log, lost, self._own(lost), self.of.world.now)

    def _own(self, records: Iterable[Record]) -> list[Record]:
        return [record for record in records if not record.control and record.payload[2] == self.query]

    def _told_nobody(self, begin_at: int | None) -> set[int]:
        """Rows that an operator has aborted in one partition, out of a committed transaction of the last decision in a
        lost ledger, behind which ``ledger.begin`` has begun another one. Whoever looked back could note only in the
        lost ledger what it found. Earlier decisions were looked at before this one was made, and later ones are by what
        the new ledger has of them."""
        if begin_at is None:
            return set()
        behind = [pair for pair in self.forgotten if self.decided[pair].batch < begin_at and self.fates.get(pair)]
        producers = {(pair.producer_id, pair.epoch) for pair in behind}
        logs = [log for place, log in self.cluster.logs.items() if place[0] in self.plan.outputs]
        aborted = [r for log in logs for r in log.records if not r.control and r.visible is False]
        return {record.payload[1] for record in aborted if (record.producer_id, record.epoch) in producers}

    def _behind_others(self) -> set[int]:
        """Rows that are committed behind what another query has left open, which has come to its end."""
        rows = set()
        for place, log in self.cluster.logs.items():
            if place[0] in self.plan.outputs and log.open:
                names = [self.cluster.owner(producer_id)[0] for producer_id in log.open]
                if not any(is_name_of(PREFIX, self.query, name) for name in names):
                    rows |= {record.payload[1] for record in log.records[log.stable :] if self._is_own(place, record)}
        return rows

    def _check_notes(self) -> None:
        """Those of each micro-batch are there, and the head knows of them and of no others."""
        visible = {record.payload for record in self.cluster.log(NOTES).records if record.visible}
        known = noted_by(self.heads[-1].decision)
        if (len(visible), digest_of(visible)) != ((known.count, known.digest) if known is not None else (0, 0)):
            raise Violation(NOTES_GO_ALONG, f"{visible} are visible, the head knows of {known}")

    def _check_extra(self, run: str, decision: Decision) -> None:
        """Each publication of a decision has the decision's own extra; of a copy, its planned rows, and those that each
        transaction has."""
        if self.plan.notes and noted_by(decision) != noted_after(decision.batch, self.plan.rows):
            raise Violation(EXTRAS_GO_ALONG, f"batch {decision.batch} has {decision.extra}")
        if not self.plan.copy:
            return
        copied = copied_by(decision)
        own = {w.pair: set(rows_in(ranges_of(w))) for w in decision.written}
        rows = set(rows_in(copied.ranges if copied is not None else ())).union(*own.values())
        if decision.batch not in self._copied:
            (driver,) = (driver for driver in self.of.drivers if driver.run == run)
            self._copied[decision.batch] = set(range(*driver.planned[decision.batch]))
        if rows != self._copied[decision.batch]:
            raise Violation(EXTRAS_GO_ALONG, f"batch {decision.batch} has {rows} by {decision.extra}")
        logs = [log for place, log in self.cluster.logs.items() if place[0] in self.plan.outputs]
        for pair, named in own.items():
            there = {r.payload[1] for log in logs for r in log.records if not r.control and self._is_of(r, pair)}
            if not there <= named:
                raise Violation(EXTRAS_GO_ALONG, f"{pair} has {there}, and is to be read again from {named}")

    @staticmethod
    def _is_of(record: Record, pair: Pair) -> bool:
        return (record.producer_id, record.epoch) == (pair.producer_id, pair.epoch)

    def _check_topics(self) -> None:
        to = {driver.run: driver.topic for driver in self.of.drivers}
        astray = {batch: seen for batch, seen in self._topics.items() if seen != {to[self.deciders[batch]]}}
        if astray:
            raise Violation(ONE_TOPIC, f"{astray}, decided by {self.deciders}, which write to {to}")

    def _check_order(self, place: Place) -> None:
        """Within a task's transaction as the task wrote them, and micro-batches one after the other."""
        visible = [r for r in self.cluster.log(place).records if self._is_own(place, r)]
        batches = [record.payload[0] for record in visible]
        if batches != sorted(batches):
            raise Violation(IN_ORDER, f"{place}: batches {batches}")
        by_writer: dict[tuple[int, int], list[int]] = {}
        for record in visible:
            by_writer.setdefault((record.producer_id, record.epoch), []).append(record.payload[1])
        for writer, rows in by_writer.items():
            if rows != sorted(rows):
                raise Violation(IN_ORDER, f"{place}: {writer} wrote {rows}")


def _follows(head: Head, before: Head) -> bool:
    """Whether a head names the runs that another one does as its own or as earlier ones."""
    runs = [run for run in (before.run, *before.earlier) if run != NOBODY]
    return [head.run, *head.earlier][-len(runs) :] == runs if runs else False
