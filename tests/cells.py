"""Suites by version, one cell of a table for each: what came of it is noted, and a later run goes on from there."""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "versions.md"
GREEN = "ok"
_DOES_NOT_APPLY = "–"
_NOT_RUN = "not run"
Notes = dict[str, dict[str, str]]


class NotThere(Exception):
    """What a cell needs is not on this machine; the text goes into the table."""


@dataclass(frozen=True)
class Cells:
    """A table of docs/versions.md, between two comments with its name.

    ``rows``: the text of each row's first column, by the row's name. ``scenarios``: pytest's arguments, by the name of
    the column. ``applies``: whether a row has a cell for a scenario. ``python``: the command that runs pytest for a
    row, with the row's own arguments; it may raise NotThere.
    """

    name: str
    head: str
    notes: Path
    rows: Mapping[str, str]
    scenarios: Mapping[str, tuple[str, ...]]
    applies: Callable[[str, str], bool]
    python: Callable[[str], tuple[list[str], list[str]]]

    def main(self, program: str, description: str | None) -> int:
        """Run the cells that are not green yet, by the command line; the exit code."""
        parser = argparse.ArgumentParser(prog=program, description=description)
        parser.add_argument("--only", action="append", choices=self.rows, help="of these rows")
        parser.add_argument("--scenario", action="append", choices=self.scenarios, help="of these scenarios")
        parser.add_argument("--again", action="store_true", help="what is green, too")
        parser.add_argument("--seconds", type=float, default=600.0, help="for each cell (default: %(default)s)")
        arguments = parser.parse_args()
        for row in arguments.only or self.rows:
            done = {} if arguments.again else self.noted().get(row, {})
            for scenario in arguments.scenario or self.scenarios:
                if self.applies(row, scenario) and not done.get(scenario, "").startswith(GREEN):
                    self._note(row, scenario, self._run(row, scenario, arguments.seconds))
        notes = self.noted()
        print(self.table(notes))
        return int(any(not of.startswith(GREEN) for row in notes.values() for of in row.values()))

    def _run(self, row: str, scenario: str, seconds: float) -> str:
        """What came of it: `GREEN` with the number of tests, or the tests that failed."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            try:
                python, options = self.python(row)
                command = [*python, "-m", "pytest", "-q", *self.scenarios[scenario], *options, f"--junitxml={report}"]
                subprocess.run(command, cwd=ROOT, check=False, timeout=seconds)
            except NotThere as reason:
                return str(reason)
            except subprocess.TimeoutExpired:
                print(f"{row}, {scenario}: not done within {seconds:.0f} s", flush=True)
            return _came_of(report)

    def noted(self) -> Notes:
        """By row and scenario: what came of it."""
        notes: Notes = json.loads(self.notes.read_text()) if self.notes.exists() else {}
        return notes

    def _note(self, row: str, scenario: str, came_of: str) -> None:
        notes = self.noted()  # another run may have noted something meanwhile
        notes.setdefault(row, {})[scenario] = came_of
        self.notes.write_text(json.dumps(notes, indent=1, sort_keys=True) + "\n")
        begin, end = f"<!-- {self.name} -->", f"<!-- end of {self.name} -->"
        before, _, rest = PAGE.read_text().partition(begin)
        _, _, after = rest.partition(end)
        PAGE.write_text(f"{before}{begin}\n\n{self.table(notes)}\n\n{end}{after}")

    def table(self, notes: Notes) -> str:
        """In Markdown."""
        lines = [f"| {self.head} | {' | '.join(self.scenarios)} |", "| --- |" + " --- |" * len(self.scenarios)]
        for row, text in self.rows.items():
            noted = notes.get(row, {})
            found = [noted.get(s, _NOT_RUN) if self.applies(row, s) else _DOES_NOT_APPLY for s in self.scenarios]
            shown = [each.removeprefix(f"{GREEN} (").removesuffix(")") for each in found]
            if len(set(shown)) == 1:  # such as a version that is not there
                shown[1:] = [""] * len(shown[1:])
            lines.append(f"| {text} | {' | '.join(shown)} |")
        return "\n".join(lines)


def _came_of(report: Path) -> str:
    if not report.exists():
        return _NOT_RUN
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [str(case.get("name")) for case in cases if {child.tag for child in case} & {"failure", "error"}]
    counts = Counter("skipped" if case.find("skipped") is not None else "passed" for case in cases)
    if failed:
        return f"failed: {', '.join(sorted(failed))}"
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    return f"{GREEN} ({counts['passed']}{skipped})" if counts["passed"] else _NOT_RUN
