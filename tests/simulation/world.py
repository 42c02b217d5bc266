"""Time, actors and faults: one actor runs at a time, and which one, and what strikes it, follows from the schedule
alone.

Actors are greenlets that hand over to one another at scheduling points; the protocol's code is plain blocking code.
Time is simulated: a point costs a millisecond, and when every actor sleeps the clock jumps to the next moment at
which something is due.
"""

from __future__ import annotations

import heapq
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from greenlet import GreenletExit, getcurrent, greenlet

from .faults import OF_REQUESTS, WHERE, Fate, Fault, Strike

#: How a patient caller waits between its tries: milliseconds, about a minute in all.
WAITS = (5, 20, 100, 400, 2_000, 8_000, 20_000, 30_000)

#: How long a caller waits for an answer.
ANSWER_MS = 1_000

#: An actor begins as deep in the stack as the one was that had its turn before.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))

#: More than any schedule needs: whoever comes here runs in circles.
STEPS = 20_000


class Killed(BaseException):
    """The process of the actor is gone; nothing that it still does has an effect."""


class Violation(Exception):
    """An invariant is broken."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


@dataclass
class Reply:
    """An answer, which may come later than the request's effect. ``code`` is Kafka's; None as long as there is none."""

    code: int | None = None
    value: object = None


@dataclass(eq=False)
class Actor:
    """A process, or as much of one as matters. ``waits`` holds it until it is true or the clock is past ``wake``.
    ``looked``: at which step it has asked last where the ledger ends."""

    name: str
    role: str
    wake: int = 0
    waits: Callable[[], bool] | None = None
    killed: bool = False
    done: bool = False
    born_ms: int = 0
    turn: greenlet | None = None
    looked: int = -1


Handler = Callable[[Actor, Fault], bool]


class World:
    """``quantum``: after how many points another actor gets its turn. Handlers say whether a fault applied. ``struck``:
    how many faults of each kind did."""

    def __init__(self, faults: tuple[Fault, ...], quantum: int) -> None:
        self.now = 0
        self.step = 0
        self.handlers: dict[Strike, Handler] = {}
        self._happening = False
        self.trace: list[str] | None = None
        self.struck: Counter[Strike] = Counter()
        self._faults = sorted(faults, key=lambda fault: fault.step, reverse=True)
        self._due: list[Fault] = []
        self._cut_until, self._answers_only = 0, False
        self._quantum, self._left = quantum, quantum
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._failure: BaseException | None = None
        self._main = getcurrent()

    # Actors

    def spawn(self, name: str, role: str, body: Callable[[], None]) -> Actor:
        actor = Actor(name, role, killed=self._failure is not None, born_ms=self.now)
        self._actors.append(actor)

        def job(_: object = None) -> None:
            try:
                if not actor.killed:
                    body()
            except Killed:
                pass
            except GreenletExit:
                return  # nobody runs this world any more
            except BaseException as error:
                self.fail(error)
            actor.done = True
            self._actors.remove(actor)
            getcurrent().parent = self._next()  # goes on when this one returns

        actor.turn = greenlet(job, self._main)
        return actor

    def run(self) -> None:
        """Until nobody has anything left to do. Raises what an actor, or an event, has raised."""
        self._main = getcurrent()
        following = self._next()
        if following is not self._main:
            following.switch()
        if self._failure is not None:
            raise self._failure

    def add(self, fault: Fault) -> None:
        """One more fault, which strikes as soon as it can."""
        self._due.append(fault)

    def kill(self, actor: Actor) -> None:
        actor.killed = True

    def fail(self, error: BaseException) -> None:
        """End the schedule with this error; the first one counts."""
        if self._failure is None:
            self._failure = error
        for actor in self._actors:
            actor.killed = True

    @property
    def acting(self) -> Actor | None:
        """Who sends the request that takes effect; None where nobody does any more, or nobody ever did."""
        return None if self._happening else self._current

    @property
    def current(self) -> Actor:
        assert self._current is not None
        return self._current

    # What actors call

    def point(self, what: str, request: bool = False) -> Fate:
        """A scheduling point: somebody else may run before ``what`` happens, and faults may strike."""
        actor = self.current
        if actor.killed:
            raise Killed
        self.step += 1
        self.now += 1
        if self.step > STEPS:
            raise Violation("goes on", f"no end after {STEPS} steps")
        fate = Fate()
        if self._faults or self._due:
            self._strike(actor, what, request, fate)
        self._left -= 1
        self._yield(actor)
        self._tell(f"{actor.name}: {what}")
        return fate

    def sleep(self, ms: int) -> None:
        self.current.wake = self.now + ms
        self._yield(self.current)

    def wait(self, until: Callable[[], bool], ms: int | None = None) -> bool:
        """Until it is true, or so many milliseconds have passed; whether it is true."""
        actor = self.current
        if not until():
            actor.waits, actor.wake = until, self.now + ms if ms is not None else 1 << 60
            self._yield(actor)
            actor.waits = None
            actor.wake = 0
        return until()

    def retrying(self) -> Iterator[None]:
        for ms in WAITS:
            yield
            self.sleep(ms)
        yield

    def call(self, what: str, handle: Callable[[], Reply]) -> Reply | None:
        """Send a request and wait for its answer; None when none came in time."""
        fate = self.point(what, request=True)
        lost, answer_lost = Strike.REQUEST_LOST in fate.struck, Strike.ANSWER_LOST in fate.struck
        if self.now < self._cut_until:
            lost, answer_lost = not self._answers_only, self._answers_only
        late, doubled = fate.struck.get(Strike.REQUEST_LATE), fate.struck.get(Strike.REQUEST_DOUBLED)
        if late is not None:
            self.at(late, lambda: self._effect(what, handle))
        if lost or late is not None:
            self.sleep(ANSWER_MS)
            return None
        reply = handle()
        if doubled is not None:
            self.at(doubled, lambda: self._effect(what, handle))
        if fate.dies_after:
            self.current.killed = True
            raise Killed
        if answer_lost:
            self.sleep(ANSWER_MS)
            return None
        return reply if self.wait(lambda: reply.code is not None, ANSWER_MS) else None

    def _effect(self, what: str, handle: Callable[[], Reply]) -> None:
        self._tell(f"(late) {what}")
        handle()

    def _tell(self, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.step:5} {self.now:9} {what}")

    def at(self, ms: int, event: Callable[[], None]) -> None:
        """In so many milliseconds from now."""
        heapq.heappush(self._events, (self.now + ms, next(self._order), event))

    def calm(self) -> None:
        """No fault strikes any more."""
        self._faults.clear()
        self._due.clear()
        self._cut_until = 0

    # Faults

    def _strike(self, actor: Actor, what: str, request: bool, fate: Fate) -> None:
        while self._faults and self._faults[-1].step <= self.step:
            self._due.append(self._faults.pop())
        for fault in tuple(self._due):
            if self._applies(fault, actor, what, request, fate):
                self._due.remove(fault)
                self.struck[fault.strike] += 1
                if fault.then is not None:
                    self._due.append(fault.then)
                self._tell(f"*** {fault.strike.value} ({fault.size}) at {actor.name}: {what}")
                if actor.killed:
                    raise Killed

    def _applies(self, fault: Fault, actor: Actor, what: str, request: bool, fate: Fate) -> bool:
        if not (what.startswith(fault.at) or f"{actor.role}: {what}".startswith(fault.at)):
            return False
        if fault.strike in OF_REQUESTS:
            if request:
                fate.struck[fault.strike] = fault.size
            return request
        if fault.strike is Strike.STALL:
            actor.wake = self.now + fault.size
            return True
        if fault.strike is Strike.PAUSE:
            self.now += fault.size
            return True
        if fault.strike is Strike.CUT:
            self._cut_until, self._answers_only = self.now + fault.size, fault.size % 2 == 1
            return True
        if fault.strike is Strike.TASK_DIES and actor.role == "task":
            fate.dies_after = request and bool(fault.size % 2)
            actor.killed = not fate.dies_after
            return True
        handler = self.handlers.get(fault.strike)
        return handler is not None and what.startswith(WHERE.get(fault.strike, "")) and handler(actor, fault)

    # Turns

    def _yield(self, actor: Actor) -> None:
        following = self._choose()
        if following is not actor:
            self._current = following
            self._turn_of(following).switch()
        if actor.killed:
            raise Killed

    def _next(self) -> greenlet:
        """Whose turn it is, where nobody's is."""
        self._current = self._choose()
        return self._turn_of(self._current)

    def _turn_of(self, actor: Actor | None) -> greenlet:
        if actor is None:
            return self._main
        assert actor.turn is not None
        return actor.turn

    def _choose(self) -> Actor | None:
        """Whose turn it is: the same actor's as long as its quantum lasts, then the next one's that can go on."""
        while True:
            self._happen()
            current = self._current
            if current is not None and self._left > 0 and not current.done and self._ready(current):
                return current
            for actor in self._actors:
                if actor is not current and self._ready(actor):
                    self._actors.remove(actor)
                    self._actors.append(actor)
                    self._left = self._quantum
                    return actor
            if current is not None and not current.done and self._ready(current):
                self._left = self._quantum
                return current
            if not self._jump():
                if self._actors:
                    self.fail(Violation("goes on", f"all wait: {', '.join(a.name for a in self._actors)}"))
                    continue
                return None

    def _ready(self, actor: Actor) -> bool:
        if actor.killed:
            return True
        if actor.waits is not None:
            return actor.waits() or actor.wake <= self.now
        return actor.wake <= self.now

    def _happen(self) -> None:
        self._happening = True
        while self._events and self._events[0][0] <= self.now and self._failure is None:
            event = heapq.heappop(self._events)[2]
            try:
                event()
            except Exception as error:
                self.fail(error)
        self._happening = False

    def _jump(self) -> bool:
        times = [actor.wake for actor in self._actors if self.now < actor.wake < 1 << 60]
        if self._events:
            times.append(self._events[0][0])
        if not times or self._failure is not None:
            return False
        self.now = max(self.now, min(times))
        return True
