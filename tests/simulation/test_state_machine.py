"""The protocol and its surroundings as a state machine: Hypothesis chooses, step by step, who goes on and what strikes.

Where ``test_simulation.py`` draws a whole schedule beforehand, here each choice is made in the state that the last ones
have led to, and what is left of a failure after shrinking is a short program of such choices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from .coordinator import WEEK_MS
from .plan import FIRST, LATER, Plan
from .play import Run
from .schedule import _PLACES, Schedule
from .situations import SIZES
from .test_simulation import SCHEDULES
from .world import Fault, Strike

STEPS_AT_ONCE = (1, 5, 20, 60)
LAST_STOPS = 3


def striking(*strikes: Strike) -> Callable[[Any], Any]:
    """A rule by which one of these faults waits for its place."""

    def decorate(body: Any) -> Any:
        drawn = {"size": st.sampled_from(SIZES), "at": st.sampled_from(sorted(set(_PLACES)))}
        return precondition(lambda self: self.going)(rule(strike=st.sampled_from(strikes), **drawn)(body))

    return decorate


class QueryUnderWay(RuleBasedStateMachine):
    """A query under way. What must hold is watched at every step of the world, and counted at the end."""

    @initialize(
        rows=st.lists(st.sampled_from((0, 1, 3, 4, 6)), min_size=1, max_size=4),
        tasks=st.lists(st.sampled_from((2, 3)), min_size=3, max_size=3),
        lingering=st.booleans(),
        quantum=st.sampled_from((1, 2, 5, 20, 1000)),
        first_epoch=st.sampled_from((0, 32_760, 32_765, 32_766)),
    )
    def start(self, rows: list[int], tasks: list[int], lingering: bool, quantum: int, first_epoch: int) -> None:
        plan = Plan(tuple(rows), tuple(tasks), lingering, (FIRST, LATER))
        self.one = Run(Schedule(plan, quantum=quantum, first_epoch=first_epoch))
        self.one.query.start()
        self.going = True
        self.failed = False

    @rule(steps=st.sampled_from(STEPS_AT_ONCE))
    def go_on(self, steps: int) -> None:
        self._run(steps)

    @striking(Strike.REQUEST_LOST, Strike.ANSWER_LOST, Strike.REQUEST_LATE, Strike.REQUEST_DOUBLED, Strike.CUT)
    def the_network_fails(self, strike: Strike, size: int, at: str) -> None:
        self._strike(strike, size, at)

    @striking(Strike.APPEND_SLOW, Strike.APPEND_FAILS, Strike.APPEND_FAILS_LATER, Strike.COORDINATOR_MOVES)
    def the_coordinator_fails(self, strike: Strike, size: int, at: str) -> None:
        self._strike(strike, size, at)

    @striking(
        Strike.TIMEOUT_SLOW, Strike.TIMEOUT_FAILS, Strike.MARKERS_LATE, Strike.MARKERS_TORN, Strike.COORDINATOR_STALE
    )
    def the_coordinator_is_late(self, strike: Strike, size: int, at: str) -> None:
        self._strike(strike, size, at)

    @striking(Strike.STALL, Strike.TASK_DIES, Strike.DRIVER_DIES, Strike.JVM_DIES, Strike.RESULT_LOST)
    def a_process_dies_or_stalls(self, strike: Strike, size: int, at: str) -> None:
        self._strike(strike, size, at)

    @striking(Strike.SECOND_DRIVER, Strike.QUERY_STOPPED, Strike.SPECULATION, Strike.STAGE_RETRY, Strike.OTHER_QUERY)
    def spark_does_more_than_once(self, strike: Strike, size: int, at: str) -> None:
        self._strike(strike, size, at)

    @precondition(lambda self: self.going)
    @rule(ms=st.sampled_from((*SIZES, WEEK_MS)))
    def time_passes(self, ms: int) -> None:
        self._strike(Strike.WEEK_PASSES if ms == WEEK_MS else Strike.PAUSE, ms, "")

    @precondition(lambda self: hasattr(self, "one"))
    @invariant()
    def no_row_twice_and_none_undecided(self) -> None:
        """The watch has its own eyes at every step; this is the sum of them."""
        visible = self.one.watch.seen.values()
        committed = {(pair.producer_id, pair.epoch) for pair, done in self.one.watch.fates.items() if done}
        assert {(pair.producer_id, pair.epoch) for pair in visible} <= committed

    def teardown(self) -> None:
        """Without further faults, the query comes to its end."""
        if not hasattr(self, "one") or self.failed:
            return
        self.one.world.calm()
        self._run(0)
        assert self.one.query.done, f"the query ended with {self.one.query.stops[-LAST_STOPS:]}"
        self.one.watch.conclude(self.one.query)

    def _strike(self, strike: Strike, size: int, at: str) -> None:
        self.one.world.add(Fault(0, strike, size, at))

    def _run(self, steps: int) -> None:
        if not self.going:
            return
        try:
            self.going = self.one.world.run(steps)
        except BaseException:
            self.failed = True
            raise


TestStateMachine = QueryUnderWay.TestCase
TestStateMachine.settings = settings(
    max_examples=max(1, SCHEDULES // 5),
    stateful_step_count=30,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
