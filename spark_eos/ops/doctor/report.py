"""Findings as text and as plain data for JSON. Kafka properties are in neither."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from spark_eos.ops.doctor.finding import Finding, Severity

_WORST_FIRST = (Severity.ERROR, Severity.UNKNOWN, Severity.WARNING, Severity.OK)
_PLURALS = {Severity.ERROR: "error(s)", Severity.WARNING: "warning(s)"}
Paint = Callable[[Severity, str], str]


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """The worst first; among those of one severity, as they were found."""
    return sorted(findings, key=lambda finding: _WORST_FIRST.index(finding.severity))


def exit_code(findings: Sequence[Finding]) -> int:
    """1 where something is wrong, else 2 where something could not be found out, else 0."""
    severities = {finding.severity for finding in findings}
    return 1 if Severity.ERROR in severities else 2 if Severity.UNKNOWN in severities else 0


def verdict(findings: Sequence[Finding]) -> str:
    """The last line of a report, with how many findings there are of each severity."""
    counts = {severity: [f.severity for f in findings].count(severity) for severity in _WORST_FIRST}
    counted = ", ".join(f"{count} {_PLURALS.get(severity, severity.value)}" for severity, count in counts.items())
    if counts[Severity.ERROR]:
        return f"The exactly-once requirements are not met here: {counted}."
    if counts[Severity.UNKNOWN]:
        return f"Nothing wrong was found, but not everything could be looked at: {counted}."
    return f"The exactly-once requirements are met here: {counted}."


def as_json(findings: Sequence[Finding], did: Sequence[str]) -> dict[str, Any]:
    """``did``: what was tried, in sentences."""
    return {
        "verdict": verdict(findings),
        "findings": [{**asdict(finding), "fix": list(finding.fix)} for finding in in_order(findings)],
        "did": list(did),
    }


def as_text(findings: Sequence[Finding], did: Sequence[str], paint: Paint = lambda severity, text: text) -> str:
    """``paint`` colours a severity's word."""
    width = max(len(severity.value) for severity in Severity)
    lines: list[str] = []
    for finding in in_order(findings):
        word = paint(finding.severity, finding.severity.value.ljust(width))
        lines.append(f"{word}  {finding.subject}: {_told(finding)}")
        indent = " " * (width + 2)
        if finding.severity is not Severity.OK and finding.why:
            lines.append(f"{indent}{finding.why}")
        lines += [f"{indent}$ {fix}" if not fix.startswith("#") else f"{indent}{fix}" for fix in finding.fix]
    return "\n".join([*lines, "", *did, verdict(findings)])


def _told(finding: Finding) -> str:
    return f"[{finding.condition}] {finding.what}" if finding.condition else finding.what
