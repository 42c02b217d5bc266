"""Faults that belong together, one after the other: the situations that are known to be hard."""

from __future__ import annotations

from spark_eos.base.failpoints import POINTS

from .ledger import PREFIX, QUERY
from .world import Strike

#: Milliseconds, from a hiccup to longer than any timeout; odd and even, as a size is also a choice.
SIZES = (3, 15, 60, 301, 2_000, 15_001, 70_000, 400_001)

Scene = tuple[tuple[Strike, tuple[int, ...], tuple[str, ...]], ...]

COMMIT = tuple(point for point in POINTS if point.startswith("commit.") and point != "commit.between")
_OWN = f"{PREFIX}-{QUERY}-"
END = f"end {PREFIX}-{QUERY}-"
INIT = f"init {PREFIX}-{QUERY}-"
SECOND = tuple(f"{END}{generation}-1-" for generation in (1, 1, 2, 3))
LONG = (15_001, 70_000, 400_001)
DECIDED = ("commit.decided", "commit.ended", "open.published", f"commit: {END}")
_BEHIND = (301, 15_001, 400_001)
_EARLY = ("open.", "ledger ", "prepare.", "offset log")

SLOW_CLEANER: Scene = (
    (Strike.SECOND_DRIVER, SIZES, ("open.settled", "open.published", "task: list")),
    (Strike.STALL, SIZES, ("open.published", "task: list", "task: describe", f"task: {END}1")),
    (Strike.STALL, SIZES, ("commit.decided", f"commit: {END}2")),
)
LEADER_BEHIND: tuple[Scene, ...] = (
    ((Strike.LEADER_MOVES, _BEHIND, DECIDED), (Strike.QUERY_STOPPED, SIZES, ("commit.", "ledger ", "prepare."))),
    ((Strike.LEADER_MOVES, _BEHIND, DECIDED), (Strike.DRIVER_DIES, SIZES, ("commit.", END))),
    ((Strike.LEADER_MOVES, _BEHIND, DECIDED), (Strike.SECOND_DRIVER, SIZES, ("",))),
)
LEADER_STALE: tuple[Scene, ...] = (
    ((Strike.LEADER_STALE, SIZES, DECIDED), (Strike.QUERY_STOPPED, SIZES, ("commit.", "ledger "))),
    ((Strike.LEADER_STALE, SIZES, DECIDED), (Strike.DRIVER_DIES, SIZES, ("commit.", END))),
    ((Strike.LEADER_STALE, SIZES, DECIDED), (Strike.SECOND_DRIVER, SIZES, ("commit.", "ledger "))),
    (
        (Strike.ANSWER_LOST, SIZES, (f"commit: {END}ledger",)),
        (Strike.LEADER_STALE, SIZES, (f"commit: {END}ledger", "commit: ledger ")),
    ),
)
LEDGER_GROWN: tuple[Scene, ...] = (
    ((Strike.LEDGER_GROWS, SIZES, _EARLY), (Strike.SECOND_DRIVER, SIZES, _EARLY)),
    ((Strike.SECOND_DRIVER, SIZES, _EARLY), (Strike.LEDGER_GROWS, SIZES, _EARLY)),
    ((Strike.LEDGER_GROWS, SIZES, ("commit.", "prepare.")), (Strike.DRIVER_DIES, SIZES, ("commit.", END))),
)
GROWN_WHILE_IT_BEGINS: tuple[Scene, ...] = (
    (
        (Strike.LEDGER_GROWS, SIZES, (f"task: {INIT}ledger", "open.taken")),
        (Strike.SECOND_DRIVER, SIZES, (f"task: {INIT}ledger", "open.taken", "open.settled")),
        (
            Strike.STALL,
            (60, 301, 2_000),
            ("task: ledger ", "open.taken", "open.settled", f"task: produce {_OWN}ledger"),
        ),
    ),
)
LEDGER_LOST: tuple[Scene, ...] = (
    ((Strike.DRIVER_DIES, SIZES, (*DECIDED, END)), (Strike.LEDGER_LOST, SIZES, ("", "ledger ", "offset log"))),
    ((Strike.LEDGER_LOST, SIZES, DECIDED), (Strike.QUERY_STOPPED, SIZES, ("commit.", "commit log", "ledger "))),
    ((Strike.QUERY_STOPPED, SIZES, ("commit.",)), (Strike.LEDGER_LOST, SIZES, ("ledger ", "offset log", "abort."))),
    # The first run has begun no transaction, the second one has decided, the third one has taken the ledger
    (
        (Strike.DRIVER_DIES, SIZES, ("open.published", "open.cleaned")),
        (Strike.DRIVER_DIES, SIZES, ("commit.ended",)),
        (Strike.DRIVER_DIES, SIZES, ("open.taken",)),
        (Strike.LEDGER_LOST, SIZES, ("offset log", "ledger ")),
    ),
)
_TAKES = f"abort: {INIT}ledger", f"commit: {INIT}ledger"
LEDGER_REPLACED: tuple[Scene, ...] = (
    # A run is about to take the ledger, while another one decides in a new one, which becomes as long as the old one;
    # of which brokers hear at once, or late
    *(
        (
            (Strike.QUERY_STOPPED, (3, 15), ("prepare.",)),
            (Strike.STALL, (70_000, 400_001), (*_TAKES, "abort: ledger ", "commit: ledger ")),
            (Strike.SECOND_DRIVER, SIZES, ("abort: ledger ", "commit: ledger ", "")),
            (Strike.LEDGER_LOST, sizes, ("ledger ", "offset log", "task: ledger ")),
        )
        for sizes in ((60, 2_000, 70_000), (400_001,))
    ),
)
BATCH_WRITES: tuple[Scene, ...] = (
    ((Strike.DRIVER_DIES, SIZES, ("commit.decided", END, "commit.completed")),),
    ((Strike.SECOND_DRIVER, SIZES, COMMIT), (Strike.STALL, LONG, (*COMMIT, "commit.completed"))),
    ((Strike.QUERY_STOPPED, SIZES, COMMIT), (Strike.WEEK_PASSES, SIZES, ("open.taken", "ledger "))),
)
LEDGER_HELD: tuple[Scene, ...] = (
    ((Strike.OTHER_QUERY, LONG, ("commit.", "open.")), (Strike.QUERY_STOPPED, SIZES, (*DECIDED, "ledger "))),
    ((Strike.OTHER_QUERY, LONG, ("commit.", "open.")), (Strike.DRIVER_DIES, SIZES, DECIDED)),
    ((Strike.CUT, LONG, ("ledger fetch",)),) * 2,
)
_ADD = tuple(f"{request} {_OWN}{generation}-" for request in ("add", "produce") for generation in (1, 2))
_LATE = (60, 301, 2_000, 15_001, 70_000)
OPENED_ONCE_MORE: tuple[Scene, ...] = (
    # A request of a transaction that has been committed, or aborted, begins it anew where an end does not fence
    *(
        ((late, _LATE, _ADD), (Strike.DRIVER_DIES, SIZES, (*DECIDED, END)), (Strike.PAUSE, pause, ("ledger ", "open.")))
        for late in (Strike.REQUEST_DOUBLED, Strike.REQUEST_LATE)
        for pause in ((70_000,), (3, 301, 2_000))
    ),
    ((Strike.REQUEST_DOUBLED, _LATE, _ADD), (Strike.RESULT_LOST, SIZES, ("result ",)), (Strike.STALL, SIZES, _ADD)),
    ((Strike.REQUEST_DOUBLED, _LATE, _ADD), (Strike.SECOND_DRIVER, SIZES, ("prepare.",)), (Strike.STALL, SIZES, _ADD)),
    ((Strike.REQUEST_DOUBLED, _LATE, _ADD), (Strike.STALL, LONG, ("commit.decided", f"commit: {END}1"))),
)
LEDGER_LOST_AND_FEATURE_CHANGED: tuple[Scene, ...] = (
    # What was committed begins once more, and is aborted; the ledger is lost, and the version that would tell is raised
    (
        (Strike.REQUEST_DOUBLED, (301, 2_000), (f"add {_OWN}1-",)),
        (Strike.DRIVER_DIES, SIZES, ("ahead.taken", "commit log")),
        (Strike.PAUSE, (70_000,), ("offset log", "task: ledger ")),
        (Strike.LEDGER_LOST, SIZES, ("offset log", "task: ledger ")),
        (Strike.FEATURE_CHANGES, SIZES, ("offset log", "task: ledger ")),
    ),
)
FEATURE_CHANGED: tuple[Scene, ...] = (
    ((Strike.FEATURE_CHANGES, SIZES, ("prepare.", "commit.")), (Strike.DRIVER_DIES, SIZES, (*DECIDED, END))),
    ((Strike.FEATURE_CHANGES, SIZES, ("prepare.", INIT)), (Strike.SPECULATION, SIZES, ("prepare.", "may "))),
    (
        (Strike.DRIVER_DIES, SIZES, ("commit.decided", END)),
        (Strike.FEATURE_CHANGES, SIZES, ("ledger ", "open.taken", "offset log")),
        (Strike.DRIVER_DIES, SIZES, ("open.", END)),
        (Strike.FEATURE_CHANGES, SIZES, ("ledger ", "open.taken")),
    ),
    (
        (Strike.REQUEST_DOUBLED, _LATE, _ADD),
        (Strike.FEATURE_CHANGES, SIZES, ("prepare.", "commit.entered", "commit.taken")),
        (Strike.DRIVER_DIES, SIZES, DECIDED),
        (Strike.PAUSE, (70_000,), ("ledger ", "open.taken")),
    ),
)
HELD_FOR_EVER: tuple[Scene, ...] = (
    # The coordinators forget what is decided, and what is open in front of it hides it in the log
    (
        (Strike.TASK_DIES, (3, 15), (f"produce {_OWN}1",)),
        (Strike.DRIVER_DIES, SIZES, ("commit.ended", f"commit: {END}1")),
        (Strike.WEEK_PASSES, SIZES, ("task: ledger ",)),
        (Strike.PAUSE, (5_000,), ("task: ledger ", "open.taken")),
    ),
)
ABORTED_WHILE_IT_IS_WRITTEN: tuple[Scene, ...] = (
    ((Strike.STALL, (70_000, 400_001), (f"produce {_OWN}1",)), (Strike.ABORTED_IN_PLACE, SIZES, (f"produce {_OWN}1",))),
)
OFFSETS_REFUSED: tuple[Scene, ...] = (((Strike.OFFSETS_REFUSED, SIZES, ("commit.verified", "commit.taken")),),)

#: Where a machine dies.
LOST_FILES = (
    "",
    "commit.",
    "commit.decided",
    "commit.ended",
    "commit log",
    "offset log",
    "prepare.",
    "open.",
    "ahead.",
)
#: While transactions are open, decided, or at rest.
TOPIC_DELETED = (
    "",
    "prepare.",
    f"produce {_OWN}",
    "commit.",
    "commit.decided",
    "commit.ended",
    END,
    "open.",
    "commit log",
)
#: Where the ledger loses its newest records.
LEDGER_CUT = (
    "",
    "commit.decided",
    "commit.ended",
    f"commit: {END}",
    "commit log",
    "ahead.",
    "open.published",
    "ledger ",
    "prepare.",
)
#: Where an output partition loses its newest records: while they are written, prepared, decided, or at rest.
OUTPUT_CUT = ("", "prepare.", f"produce {_OWN}", "prepare.flushed", "commit.", "commit.decided", END, "task: ledger ")
#: Where an operator aborts a transaction in one partition, at any age: open, decided, or waiting for its markers.
ABORTED_IN_PLACE = ("", *OUTPUT_CUT, "commit.entered", "commit.verified", f"commit: {END}1", "commit.ended", "open.")
#: Where a broker has just started: while the log is asked what became of rows, or rows are written.
TOPICS_UNKNOWN = (
    "",
    "ahead: look back",
    "end: look back",
    "fetch data",
    "producers",
    "commit.ended",
    f"produce {_OWN}",
)
#: Where a coordinator refuses to end a transaction: one that is decided, or left over, or the ledger's.
END_REFUSED = ("", END, f"commit: {END}1", f"abort: {END}1", f"task: {END}1", f"commit: {END}ledger", "sweep: end ")
#: Where the driver dies after that.
AFTER_AN_ABORT = ("", "commit.ended", "commit.cleaned", "commit log", "ahead: look back", "end: ")
#: Where the driver dies when the ledger is lost.
AFTER_A_LOSS = ("", "", "commit.decided", "commit.ended", "commit log", "offset log")

#: Faults that belong together, one after the other, each with where it may be aimed at.
SCENES: tuple[Scene, ...] = (
    # All of a decision is lost by time-out; a part of it; and its repair again
    ((Strike.PAUSE, (70_000,), ("commit.decided",)),),
    ((Strike.PAUSE, (70_000,), ("commit.decided",)),) * 2,
    ((Strike.DRIVER_DIES, SIZES, ("commit.decided", END)), (Strike.PAUSE, (70_000,), ("open.taken", "ledger "))),
    ((Strike.DRIVER_DIES, SIZES, SECOND), (Strike.PAUSE, (70_000,), ("ledger ", "open."))),
    (
        (Strike.DRIVER_DIES, SIZES, SECOND),
        (Strike.PAUSE, (70_000,), ("ledger ", "open.")),
        (Strike.DRIVER_DIES, SIZES, ("commit.", "prepare.", "open.", END)),
        (Strike.PAUSE, (70_000,), ("commit.decided", "prepare.prepared", "ledger ")),
    ),
    ((Strike.REQUEST_LOST, SIZES, (END,)), (Strike.PAUSE, (70_000,), (END,))) * 2,
    ((Strike.TIMEOUT_SLOW, LONG, ("prepare.", "commit.")), (Strike.PAUSE, (70_000,), ("commit.decided",))),
    ((Strike.TIMEOUT_FAILS, SIZES, ("prepare.", "commit.")), (Strike.PAUSE, (70_000,), ("commit.decided", END))),
    # A commit stalls, or is left behind, while the query is started again
    ((Strike.SECOND_DRIVER, SIZES, COMMIT), (Strike.STALL, SIZES, COMMIT)),
    ((Strike.JVM_DIES, SIZES, COMMIT), (Strike.STALL, LONG, (*COMMIT, "list", "describe"))),
    ((Strike.QUERY_STOPPED, SIZES, COMMIT), (Strike.STALL, SIZES, (*COMMIT, "abort."))),
    (
        (Strike.QUERY_STOPPED, SIZES, ("commit: ",)),
        (Strike.STALL, (15, 60, 301), ("commit: ",)),
        (Strike.STALL, SIZES, ("abort: list", "abort: describe", "abort: end")),
    ),
    (
        (Strike.QUERY_STOPPED, SIZES, ("commit: ",)),
        (Strike.STALL, SIZES, ("abort: add", "abort: produce", f"abort: {END}ledger")),
        (Strike.STALL, SIZES, ("commit.decided", f"commit: {END}1")),
    ),
    SLOW_CLEANER,
    # The ledger is taken ahead while, or before, the query is started again
    ((Strike.SECOND_DRIVER, SIZES, ("ahead.", "prepare.")), (Strike.STALL, SIZES, ("ahead.", "commit.entered"))),
    ((Strike.JVM_DIES, SIZES, ("commit.ended", "ahead.")), (Strike.STALL, SIZES, ("ahead.read", "ahead: init"))),
    # Attempts that come late
    ((Strike.SPECULATION, SIZES, ("prepare.", "producers")), (Strike.STALL, SIZES, (INIT, "prepare."))),
    ((Strike.STAGE_RETRY, SIZES, ("prepare.", "may ", "result ")), (Strike.STALL, SIZES, (INIT, "prepare."))),
    ((Strike.RESULT_LOST, SIZES, ("result ",)), (Strike.REQUEST_LATE, SIZES, (INIT, END))),
    # Nobody knows what became of the decision, or of what it decided
    ((Strike.ANSWER_LOST, SIZES, (f"{END}ledger",)), (Strike.DRIVER_DIES, SIZES, (INIT, "ledger ", "commit."))),
    ((Strike.REQUEST_LATE, SIZES, (f"{END}ledger",)), (Strike.REQUEST_LATE, SIZES, (END,))),
    ((Strike.APPEND_FAILS, SIZES, (END, INIT)), (Strike.COORDINATOR_MOVES, SIZES, ("",))),
    ((Strike.APPEND_FAILS_LATER, SIZES, (END, INIT)), (Strike.COORDINATOR_MOVES, SIZES, ("",))),
    ((Strike.MARKERS_TORN, LONG, (END,)), (Strike.DRIVER_DIES, SIZES, COMMIT)),
    ((Strike.CUT, (2_000, *LONG), (END, "init ", "ledger ", "list", "describe")),),
    # Who ends a transaction is told by a coordinator of yesterday that there is none
    ((Strike.DRIVER_DIES, SIZES, ("commit.ended", END)), (Strike.COORDINATOR_STALE, SIZES, (f"task: {END}1",))),
    ((Strike.ANSWER_LOST, SIZES, (f"{END}1",)), (Strike.COORDINATOR_STALE, SIZES, (f"{END}1",))),
    # The coordinator has forgotten what the ledger still asks about
    ((Strike.DRIVER_DIES, SIZES, COMMIT), (Strike.WEEK_PASSES, SIZES, ("open.taken", "ledger ", "offset log"))),
    ((Strike.OTHER_QUERY, SIZES, ("ledger ", "commit.", "open.")),),
    # An operator ends what seems to be left of a query that is alive
    ((Strike.OPERATOR_ABORTS, SIZES, COMMIT), (Strike.STALL, SIZES, ("operator: ", "commit: "))),
    ((Strike.OPERATOR_ABORTS, SIZES, ("prepare.", "open.")), (Strike.STALL, SIZES, ("abort.closed", "operator: "))),
    ((Strike.DRIVER_DIES, SIZES, ("commit.decided", END)), (Strike.OPERATOR_SETTLES, SIZES, ("",))),
    # The ledger topic and its leaders
    *(
        LEADER_BEHIND
        + LEADER_STALE
        + LEDGER_GROWN
        + GROWN_WHILE_IT_BEGINS
        + LEDGER_LOST
        + LEDGER_REPLACED
        + BATCH_WRITES
        + LEDGER_HELD
        + OFFSETS_REFUSED
        + OPENED_ONCE_MORE
        + LEDGER_LOST_AND_FEATURE_CHANGED
        + FEATURE_CHANGED
        + HELD_FOR_EVER
        + ABORTED_WHILE_IT_IS_WRITTEN
    ),
)
