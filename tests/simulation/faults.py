"""What may happen in the simulated world, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Strike(Enum):
    """What may happen. The first group strikes a request, the second the actor at hand, the third anything."""

    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    REQUEST_LATE = "request takes effect late, its answer is lost"
    REQUEST_DOUBLED = "request takes effect again, late"
    APPEND_SLOW = "the coordinator's log append takes its time"
    APPEND_FAILS = "the coordinator's log append fails, after a while"
    APPEND_FAILS_LATER = "the append is given up, but a new coordinator finds it in the log"
    TIMEOUT_SLOW = "the broker's next time-out abort takes its time"
    TIMEOUT_FAILS = "the broker's next time-out abort fails, and is tried again"
    MARKERS_LATE = "markers follow late"
    MARKERS_TORN = "the first marker follows at once, the others late"

    STALL = "the actor stalls"
    TASK_DIES = "a task's process dies"
    DRIVER_DIES = "the driver dies, with the process that commits for it"
    JVM_DIES = "the driver dies, but the process that commits for it goes on"
    RESULT_LOST = "a task's result is lost"

    PAUSE = "time passes"
    CUT = "the network is cut: requests are lost, or their answers"
    COORDINATOR_MOVES = "a coordinator moves"
    COORDINATOR_STALE = "a coordinator that was replaced before the transaction began answers"
    END_REFUSED = "a coordinator refuses to end a transaction, or answers by an error that says nothing"
    FEATURE_CHANGES = "the cluster's transaction.version is raised, or lowered"
    SECOND_DRIVER = "the query is started once more on the same checkpoint"
    QUERY_STOPPED = "query.stop()"
    SPECULATION = "a running task is tried a second time"
    STAGE_RETRY = "the stage is tried again"
    OTHER_QUERY = "another query holds the ledger's partition"
    LEADER_MOVES = "the ledger, or an output partition, has a new leader, whose high watermark is behind"
    LEADER_STALE = "the ledger's leader was replaced and has not noticed: it answers as of a while ago"
    LEDGER_COMPACTED = "the cleaner comes to the ledger"
    LEDGER_GROWS = "the ledger topic is given partitions"
    LEDGER_LOST = "the ledger topic is deleted, and created anew"
    OFFSETS_REFUSED = "the group's coordinator refuses offsets"
    CHECKPOINT_LOST = "the machine dies, and the newest files of the checkpoint were never on its disk"
    TOPIC_DELETED = "an output topic is deleted; and created anew, at once or when somebody reads that it is missing"
    TOPICS_UNKNOWN = "a broker that has just started answers, which has not heard of the output topics yet"
    SOURCE_MISSING = "the sink's cluster does not have the topic that is read, for a while"
    LEDGER_CUT = "an unclean election: the ledger's newest records are gone"
    OUTPUT_CUT = "an unclean election: an output partition's newest records are gone"
    LEDGER_TRIMMED = "the ledger's records are deleted, by retention or by hand"
    WEEK_PASSES = "a week passes"
    RETENTION = "retention takes the topic's records"
    RETENTION_OF_OPEN = "retention takes the topic's records, those of open transactions, too"
    OPERATOR_ABORTS = "an operator closes the query and aborts what is not decided"
    OPERATOR_SETTLES = "an operator commits what is decided"
    ABORTED_IN_PLACE = "an operator aborts a transaction in one partition, and the coordinator does not know"


@dataclass(frozen=True)
class Fault:
    """Strikes once: at the first scheduling point from ``step`` on where it applies, and whose name begins with ``at``,
    or does so after the actor's role ("commit: end").

    ``size``: milliseconds, or a choice. ``then``: what may strike as soon as this one has.
    """

    step: int
    strike: Strike
    size: int = 0
    at: str = ""
    then: Fault | None = None


@dataclass
class Fate:
    """What becomes of one request. ``struck``: the sizes of the faults `OF_REQUESTS` that it has met."""

    struck: dict[Strike, int] = field(default_factory=dict)
    dies_after: bool = False


OF_REQUESTS = (Strike.REQUEST_LOST, Strike.ANSWER_LOST, Strike.REQUEST_LATE, Strike.REQUEST_DOUBLED)

#: Where a fault can strike at all; the others can anywhere.
WHERE: dict[Strike, str | tuple[str, ...]] = {
    Strike.APPEND_SLOW: ("init ", "end ", "add "),
    Strike.APPEND_FAILS: ("init ", "end ", "add "),
    Strike.APPEND_FAILS_LATER: ("init ", "end ", "add "),
    Strike.COORDINATOR_STALE: "end ",
    Strike.END_REFUSED: "end ",
    Strike.MARKERS_LATE: "end ",
    Strike.MARKERS_TORN: "end ",
    Strike.RESULT_LOST: "result ",
}
