"""Schedules by the thousand, in pieces: how many have passed stands in a file, and a later run goes on from there.

Beside the number stands a fingerprint of the package and of all that simulates. With other code, the count begins anew.
A schedule that fails is told, and is the first one next time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: All that may decide how a schedule ends: which part of it a schedule loads changes as quietly as the rest.
CODE = (
    *("spark_eos/**/*.py", "spark_eos/**/*.toml"),
    *("tests/simulation/**/*.py", "tests/support/**/*.py", "tests/wire/**/*.py"),
)
_SAVED_EVERY = 500


class Failed(Exception):
    """A schedule breaks an invariant. The text has the smallest one that still does, and how it goes."""


@dataclass(frozen=True)
class Played:
    """One schedule that has passed. ``ms``: by its own clock, without weeks that pass at once. ``faults``: those that
    struck, by kind; one that finds nothing to strike does not count."""

    steps: int
    ms: int
    faults: Mapping[str, int]


@dataclass(frozen=True)
class Progress:
    """``passed`` seeds from ``first`` on, by this code, and what they amount to (`Played`)."""

    code: str
    first: int
    passed: int = 0
    steps: int = 0
    ms: int = 0
    faults: Mapping[str, int] = field(default_factory=dict)

    def and_one(self, played: Played) -> Progress:
        """With one schedule more."""
        faults = dict(Counter(self.faults) + Counter(played.faults))
        done = self.passed + 1, self.steps + played.steps, self.ms + played.ms
        return replace(self, passed=done[0], steps=done[1], ms=done[2], faults=faults)


@dataclass(frozen=True)
class Campaign:
    """``play``: draws and runs the schedule of a seed; raises Failed."""

    what: str
    play: Callable[[int], Played]

    def main(self, program: str, description: str, arguments: Sequence[str]) -> int:
        """Run schedules, by the command line; the exit code."""
        parser = argparse.ArgumentParser(prog=program, description=description)
        parser.add_argument("--schedules", type=int, default=20_000, help="how many more to run (%(default)s)")
        parser.add_argument("--first", type=int, default=0, help="the first seed of all (%(default)s)")
        parser.add_argument("--state", type=Path, help="the file that says how many have passed")
        given = parser.parse_args(arguments)
        before = self.begin(given.state, given.first)
        began = time.monotonic()
        progress, failure = self.run(before, given.schedules, given.state)
        seconds, now = time.monotonic() - began, progress.passed - before.passed
        rate = now / seconds if seconds else 0
        print(f"{progress.passed} schedules of {self.what} have passed, {now} of them now, {rate:.0f} a second")
        if failure is None:
            return 0
        print(f"seed {progress.first + progress.passed}: {failure}")
        return 1

    def begin(self, state: Path | None, first: int) -> Progress:
        """Where the last call has stopped, if the code is still the same."""
        fresh = Progress(fingerprint(), first)
        kept = None if state is None else read(state)
        same = kept is not None and (kept.code, kept.first) == (fresh.code, first)
        return kept if kept is not None and same else fresh

    def run(self, progress: Progress, schedules: int, state: Path | None) -> tuple[Progress, Failed | None]:
        """So many more schedules, or until one fails."""
        for _ in range(schedules):
            try:
                played = self.play(progress.first + progress.passed)
            except Failed as failure:
                _save(progress, state)
                return progress, failure
            progress = progress.and_one(played)
            if progress.passed % _SAVED_EVERY == 0:
                _save(progress, state)
        _save(progress, state)
        return progress, None


def fingerprint() -> str:
    """Of the names and contents of `CODE`."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in CODE for path in ROOT.glob(pattern)}):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def read(state: Path) -> Progress | None:
    """What a state file says; None if there is none, or it is one of before."""
    try:
        return Progress(**json.loads(state.read_text()))
    except (FileNotFoundError, TypeError):
        return None


def _save(progress: Progress, state: Path | None) -> None:
    if state is not None:
        beside = state.with_name(state.name + ".new")  # the file is never seen in part, whenever the writer is killed
        beside.write_text(json.dumps(asdict(progress)))
        beside.replace(state)
