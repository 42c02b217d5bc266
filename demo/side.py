"""One side of the demo: a job with its sink that is killed repeatedly, and what is observed from outside."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from demo.run import FROM_OUTSIDE, DemoJob, Strike, to_end, until_point, until_rows_appear
from demo.watch import Count, OutputWatch

OUR_FORMAT = "eos-kafka"
_SETTLE_S = 5.0


class Kind(Enum):
    KILLED = "killed"
    RECOVERED = "recovered"
    ENDED = "ended"


@dataclass(frozen=True)
class JobEvent:
    """What happened, ``at_s`` seconds after the jobs began.

    ``kill``: the number of the newest kill, from 1. ``took_s``: for a recovery, the seconds since that kill.
    """

    at_s: float
    sink: str
    kind: Kind
    text: str
    kill: int
    took_s: float = 0.0


@dataclass(frozen=True)
class CountSample:
    """The output's rows ``at_s`` seconds after the jobs began."""

    at_s: float
    count: Count


@dataclass
class Side:
    """A job that is killed at each strike in turn, and then runs to its end.

    ``rows_of_batch``: about how many rows a micro-batch writes. ``poll`` is to be called over and over.
    """

    job: DemoJob
    strikes: Sequence[Strike]
    watch: OutputWatch
    rows_of_batch: int
    began: float
    events: list[JobEvent] = field(default_factory=list)
    samples: list[CountSample] = field(default_factory=list)
    kills: int = 0
    ended: bool = False

    def __post_init__(self) -> None:
        self._steps = self._run()
        self._wound: _Wound | None = None

    @property
    def sink(self) -> str:
        return self.job.sink_format

    @property
    def down(self) -> bool:
        """Whether it was killed and is not back yet."""
        return self._wound is not None

    @property
    def state(self) -> str:
        """What the job does just now, in a few words."""
        if self.ended:
            return "done"
        if self._wound is not None:
            return f"starting again, {time.monotonic() - self._wound.at:.0f} s"
        begun = self.job.progress().begun
        return "starting Spark" if begun < 0 else f"micro-batch {begun}"

    def poll(self) -> list[JobEvent]:
        """Look at the output and drive the job one step on; what has happened. Raises JobFailed."""
        told = len(self.events)
        self.watch.poll()
        self._sample()
        self._look_for_recovery()
        if next(self._steps, "ended") == "ended" and not self.ended:
            self._end()
        return self.events[told:]

    def close(self) -> None:
        """Kill the job if it runs."""
        self._steps.close()

    def _run(self) -> Generator[None, None, None]:
        for number, strike in enumerate(self.strikes, 1):
            if strike is FROM_OUTSIDE:
                yield from until_rows_appear(self.job, number, self.watch, max(1, self.rows_of_batch // 2))
            else:
                yield from until_point(self.job, number, strike)
            self._killed(strike)
        yield from to_end(self.job, len(self.strikes) + 1)

    def _killed(self, strike: Strike) -> None:
        self.kills += 1
        self._settle()
        # A death on the way back from another one: one recovery mends both.
        count = self._wound.count if self._wound else self.watch.total
        self._wound = _Wound(time.monotonic(), self.job.progress().begun, count, strike)
        self._tell(Kind.KILLED, strike.meaning)

    def _look_for_recovery(self) -> None:
        """A kill is recovered from when Spark notes the micro-batch that it interrupted as done."""
        wound = self._wound
        if wound is None or self.job.progress().done < wound.batch:
            return
        back = time.monotonic()
        self._settle()
        self._wound = None
        self._tell(Kind.RECOVERED, _mended(wound, self.watch.total), took_s=back - wound.at)

    def _settle(self) -> None:
        """Have the consumers see all that is visible by now, so that the counts belong to the event."""
        end_offsets = self.watch.end_offsets()
        deadline = time.monotonic() + _SETTLE_S
        while not self.watch.has_all_before(end_offsets) and time.monotonic() < deadline:
            self.watch.poll()

    def _end(self) -> None:
        self._look_for_recovery()
        self._settle()
        self.ended = True
        self._tell(Kind.ENDED, "everything has been read")

    def _sample(self) -> None:
        count = self.watch.total
        if not self.samples or self.samples[-1].count != count:
            self.samples.append(CountSample(time.monotonic() - self.began, count))

    def _tell(self, kind: Kind, text: str, took_s: float = 0.0) -> None:
        self._sample()
        self.events.append(JobEvent(time.monotonic() - self.began, self.sink, kind, text, self.kills, took_s))


@dataclass(frozen=True)
class _Wound:
    """A kill that is not recovered from: when, the newest micro-batch planned then, what had been counted."""

    at: float
    batch: int
    count: Count
    strike: Strike


def _mended(wound: _Wound, now: Count) -> str:
    """What a recovery did, and what it cost, in plain words."""
    again, rewritten = now.again - wound.count.again, now.rewritten - wound.count.rewritten
    if again:
        return f"{wound.strike.mended}: {again:,} rows are there twice now"
    if rewritten:
        return f"{wound.strike.mended}: {rewritten:,} rows, seen by nobody"
    return wound.strike.mended
