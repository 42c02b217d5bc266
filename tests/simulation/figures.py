"""What the simulations of a release amount to: ``python -m tests.simulation.figures``, with their two state files.

Runs the tests that put known mistakes back, counts those that are found, and writes all figures into
docs/simulated.json, by version, and into the table of docs/testing.md. A state that other code has left, or one of
fewer schedules than the notes have of the same code, changes nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spark_eos import __version__

from .campaign import ROOT, Progress, fingerprint, read

NOTES, PAGE = ROOT / "docs" / "simulated.json", ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- simulated -->", "<!-- end of simulated -->"
#: So many digits of a fingerprint are shown.
_CODE = 8
_OWN, _SEEN = "tests/simulation", "test_the_mistake_is_seen"
#: By simulation: the tests that put one mistake each back, and pass if an invariant finds it.
TESTS = {"protocol": f"{_OWN}/test_known_mistakes.py", "source": f"{_OWN}/source/test_known_mistakes.py"}
Notes = dict[str, dict[str, dict[str, Any]]]


def mistakes(tests: str) -> tuple[int, int]:
    """How many are put back by the tests of a file, and how many of them are found."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-k", _SEEN, tests, f"--junitxml={report}"]
        subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
        cases = list(ElementTree.parse(report).iter("testcase"))
    return len(cases), sum(len(case) == 0 for case in cases)


def noted(progress: Progress, planted: int, found: int) -> dict[str, Any]:
    """A simulation's figures, of this code."""
    return {
        "code": progress.code,
        "schedules": progress.passed,
        "steps": progress.steps,
        "hours": round(progress.ms / 3_600_000),
        "faults": dict(sorted(progress.faults.items())),
        "planted": planted,
        "found": found,
    }


def table(notes: Notes) -> str:
    """In Markdown: a row for each release and simulation."""
    lines = [
        "| release | code | simulation of | schedules | hours | steps | faults | mistakes put back | found |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for version, simulations in notes.items():
        for name, one in simulations.items():
            numbers = one["schedules"], one["hours"], one["steps"], sum(one["faults"].values()), one["planted"]
            figures = " | ".join(f"{n:,}" for n in (*numbers, one["found"]))
            lines.append(f"| {version} | {one['code'][:_CODE]} | {name} | {figures} |")
    return "\n".join(lines)


def noted_so_far() -> Notes:
    """By version and simulation."""
    notes: Notes = json.loads(NOTES.read_text()) if NOTES.exists() else {}
    return notes


def _is_new(progress: Progress, known: Mapping[str, Any]) -> bool:
    more = progress.code != known.get("code") or progress.passed > known["schedules"]
    return progress.code == fingerprint() and progress.passed > 0 and more


def main(states: Sequence[str]) -> int:
    """Note what these state files have; the exit code."""
    notes = noted_so_far()
    release = notes.setdefault(__version__, {})
    for (name, tests), state in zip(TESTS.items(), states, strict=True):
        progress = read(Path(state))
        if progress is not None and _is_new(progress, release.get(name, {})):
            release[name] = noted(progress, *mistakes(tests))
            print(f"{name}: {release[name]['found']} of {release[name]['planted']} mistakes are found")
    NOTES.write_text(json.dumps(notes, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(notes)}\n\n{END}{rest.partition(END)[2]}")
    return int(any(one["found"] < one["planted"] for one in release.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
