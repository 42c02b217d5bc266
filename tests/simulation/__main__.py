"""Schedules by the thousand: ``python -m tests.simulation``. It goes on where it was stopped.

How many schedules have passed stands in a file, with a fingerprint of the code that has passed them: protocol, ledger
reader and simulation. With other code, the count begins anew. A schedule that fails is told and run first next time.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from .play import play, shrink
from .report import told
from .schedule import Extras, Schedule, draw
from .world import Violation

ROOT = Path(__file__).parents[2]
_CODE = ("spark_eos/protocol/*.py", "spark_eos/ledger/reader.py", "tests/simulation/*.py")
_SAVED_EVERY = 500
KINDS = tuple(field.name for field in fields(Extras))


@dataclass(frozen=True)
class Progress:
    """Seeds from ``first`` on, ``passed`` of them, by this code. ``always``: kinds of extras that each schedule has."""

    code: str
    first: int
    passed: int
    always: str = ""

    def schedule(self, number: int) -> Schedule:
        """That of a seed."""
        always = Extras(**dict.fromkeys(self.always.split(","), 1.0)) if self.always else None
        return draw(random.Random(self.first + number), extras=always)


def fingerprint() -> str:
    """Of all that decides how a schedule ends."""
    digest = hashlib.sha256()
    for pattern in _CODE:
        for path in sorted(ROOT.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def begin(state: Path | None, first: int, always: str = "") -> Progress:
    """Where the last call has stopped, if the code is still the same."""
    fresh = Progress(fingerprint(), first, 0, always)
    if state is None or not state.exists():
        return fresh
    kept = Progress(**json.loads(state.read_text()))
    return kept if replace(kept, passed=0) == fresh else fresh


def run(progress: Progress, schedules: int, state: Path | None) -> tuple[Progress, Violation | None]:
    """So many more schedules, or until one fails."""
    for _ in range(schedules):
        try:
            play(progress.schedule(progress.passed))
        except Violation as violation:
            _save(progress, state)
            return progress, violation
        progress = replace(progress, passed=progress.passed + 1)
        if progress.passed % _SAVED_EVERY == 0:
            _save(progress, state)
    _save(progress, state)
    return progress, None


def _save(progress: Progress, state: Path | None) -> None:
    if state is not None:
        beside = state.with_name(state.name + ".new")
        beside.write_text(json.dumps(asdict(progress)))
        beside.replace(state)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=20_000, help="how many more to run (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed of all (%(default)s)")
    parser.add_argument("--state", type=Path, help="the file that says how many have passed")
    parser.add_argument("--always", default="", help=f"kinds that all of them have, with commas: {', '.join(KINDS)}")
    given = parser.parse_args(arguments)
    progress, began = begin(given.state, given.first, given.always), time.monotonic()
    before = progress.passed
    progress, violation = run(progress, given.schedules, given.state)
    seconds = time.monotonic() - began
    rate = (progress.passed - before) / seconds if seconds else 0
    print(f"{progress.passed} schedules have passed, {progress.passed - before} of them now, {rate:.0f} a second")
    if violation is None:
        return 0
    seed = progress.first + progress.passed
    print(f"seed {seed}: {violation}\n{told(shrink(progress.schedule(progress.passed), violation.invariant))}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
