"""The report: as data, JSON and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_eos.base.printable import in_lines
from spark_eos.tools.verify.bounds import PartitionBounds, VerifiedBounds
from spark_eos.tools.verify.comparison import Comparison
from spark_eos.tools.verify.judge import FAULTS, Case, Findings
from spark_eos.tools.verify.spill import BY_VALUE
from spark_eos.tools.verify.tables import TableAddress


@dataclass(frozen=True)
class Example:
    """One faulty row: its id, None if it cannot be read, and its positions, ``topic-partition@offset`` or the table."""

    id: str | None
    input: str | None
    output: str | None
    note: str = ""


@dataclass(frozen=True)
class Report:
    """The findings. ``counts``: see `COUNTS`; ``faults``: their names, with ``examples`` of each;
    ``warnings``: limits of the answer."""

    counts: Mapping[str, int]
    examples: Mapping[str, Sequence[Example]]
    warnings: Sequence[str]
    faults: Sequence[str]

    @property
    def ok(self) -> bool:
        """True if rows were compared, without a fault; rows that were left out or still wait are no faults."""
        return not self.faults and self.counts["pairs"] > 0

    @property
    def verdict(self) -> str:
        """One line: how many rows got through, or how many there are of each fault."""
        if self.ok:
            left_out = f", {self.counts['left_out']:,} left out" if self.counts["left_out"] else ""
            return f"OK: {self.counts['pairs']:,} rows got through exactly once{left_out}"
        if not self.faults:
            return f"NOTHING COMPARED: of {self.counts['input']:,} rows of the input, none is in the output"
        return "FAULTY: " + ", ".join(f"{self.counts[fault]:,} {label(fault)}" for fault in self.faults)


#: How many commits are named, the newest ones, that have removed rows of a table.
_REMOVALS = 5

#: Every count of a report, with its line in the table.
COUNTS = {
    "input": "rows in the input",
    "input_uncommitted": "rows of the input that only read_uncommitted sees",
    "output": "rows in the output",
    "output_uncommitted": "rows of the output that only read_uncommitted sees",
    "pairs": "rows of the output that are a row of the input",
    "waiting": "rows of the input that are not due yet",
    "lost": "due, and not in the output; where the job filters rows, ask with --allow-missing",
    "left_out": "due, not in the output, and allowed to be missing",
    "doubled": "more often in the output than in the input",
    "reordered": "after a younger row of the same input partition",
    "aborted_visible": "in the output, though the input never committed it",
    "unknown": "in the output, and in no input",
    "torn": "without an id that can be read, or changed",
    "early": "in the output, though the group or query is not past it",
}


def label(fault: str) -> str:
    return fault.replace("_", " ")


def make_report(
    comparison: Comparison,
    bounds: VerifiedBounds,
    findings: Findings,
    rows: Mapping[str, int],
    warnings: Sequence[str] = (),
) -> Report:
    """Make the report. ``rows``: how many were read, by the names in `COUNTS`."""
    counts = {**rows, **findings.counts, "waiting": findings.waiting, "pairs": findings.pairs, "left_out": 0}
    if comparison.allow_missing:
        counts |= {"lost": 0, "left_out": counts["lost"]}
    faults = [fault for fault in FAULTS if counts[fault]]
    warnings = [
        *bounds.warnings,
        *warnings,
        *_removals(comparison, bounds, counts),
        *[_shared(comparison, findings.shared)] * bool(findings.shared),
        *["no row of the output is a row of the input"] * (not findings.pairs),
    ]

    def spot(partitions: Sequence[PartitionBounds], table: TableAddress | None, index: int, offset: int) -> str | None:
        if index < 0:
            return None
        return str(table) if table is not None else f"{partitions[index]}@{offset}"

    def example(case: Case) -> Example:
        by_value = case.id.startswith(BY_VALUE)
        return Example(
            None if by_value or case.note.startswith("no id") else case.id.decode(errors="backslashreplace"),
            spot(bounds.inputs, comparison.input_table, case.in_partition, case.in_offset),
            spot(bounds.outputs, comparison.output_table, case.out_partition, case.out_offset),
            f"no id at {comparison.id if case.in_partition >= 0 else comparison.output_id}" if by_value else case.note,
        )

    return Report(
        {name: counts[name] for name in COUNTS},
        {fault: [example(case) for case in findings.cases[fault]] for fault in faults},
        warnings,
        faults,
    )


def _shared(comparison: Comparison, rows: int) -> str:
    """Describe rows that cannot be told apart."""
    instead = "a unique id" if comparison.same_value else "--same-value or a unique id"
    return (
        f"{rows:,} rows of the input cannot be told from others: of these, a lost and a doubled one cancel out, and "
        f"ones in several partitions have no order; use {instead}"
    )


def _removals(comparison: Comparison, bounds: VerifiedBounds, counts: Mapping[str, int]) -> list[str]:
    """Describe other commits that may have removed rows of the table."""
    fault = "lost" if comparison.input_table is None else "unknown"
    removals = bounds.table.removals() if bounds.table is not None and counts[fault] else []
    table = comparison.output_table or comparison.input_table
    return [f"{removal}, has removed rows of {table}, which count as {fault}" for removal in removals[-_REMOVALS:]]


def as_json(comparison: Comparison, report: Report) -> dict[str, Any]:
    """Return the report as plain data; the only Kafka property in it is the servers."""
    inputs, outputs = comparison.sides
    return {
        "ok": report.ok,
        "verdict": report.verdict,
        "faults": list(report.faults),
        "counts": dict(report.counts),
        "examples": {f: [vars(e) for e in examples] for f, examples in report.examples.items() if examples},
        "warnings": list(report.warnings),
        "comparison": {
            "bootstrap.servers": comparison.kafka.bootstrap_servers,
            "input": inputs,
            "output": outputs,
            "id": str(comparison.id),
            "output_id": str(comparison.output_id),
            "group": comparison.group,
            "query": comparison.query,
            "order": comparison.order,
            "allow_missing": comparison.allow_missing,
            "same_value": comparison.same_value,
        },
    }


def as_text(comparison: Comparison, report: Report) -> str:
    """Return the report as text: a table, examples, warnings, and the verdict as the last line."""
    due_by = [f", {kind} {name}" for kind, name in (("group", comparison.group), ("query", comparison.query)) if name]
    inputs, outputs = comparison.sides
    lines = [f"{', '.join(inputs)} -> {', '.join(outputs)}{''.join(due_by)}", ""]
    for name, meaning in COUNTS.items():
        if name == ("lost" if comparison.allow_missing else "left_out"):
            continue
        if (name == "reordered" and comparison.order == "none") or (name == "early" and not due_by):
            lines.append(f"{label(name):>18} {'-':>13}  (not asked)")
        else:
            lines.append(f"{label(name):>18} {report.counts[name]:>13,}  {meaning}")
    for fault, examples in report.examples.items():
        if examples:
            lines += ["", f"{label(fault)}, {len(examples)} of {report.counts[fault]:,}:"]
            lines += [f"  {_example_text(example)}" for example in examples]
    lines += [""] * bool(report.warnings) + [f"warning: {warning}" for warning in report.warnings]
    return in_lines([*lines, "", report.verdict])


def _example_text(example: Example) -> str:
    parts = ["id " + example.id if example.id is not None else ""]
    parts += [f"input {example.input}" if example.input else "", f"output {example.output}" if example.output else ""]
    return "  ".join(part for part in [*parts, example.note and f"({example.note})"] if part)
