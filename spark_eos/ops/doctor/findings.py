"""The query that the doctor checks, its findings, and how they are printed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from spark_eos.base.printable import in_lines
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.options.parse import SinkOptions


class Severity(StrEnum):
    """``ERROR``: rows can be lost or doubled, or the query cannot run. ``WARNING``: if something else fails, too, the
    query stops, or cannot tell what became of its rows. ``UNKNOWN``: it could not be determined."""

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    """``check``: the name of the check, for scripts; ``subject``: the topic, broker or user; ``what`` was found;
    ``why`` that can lose or double rows, or stop the query; ``fix``: commands that correct it; ``condition``: of the
    sink's own check, if that has failed."""

    check: str
    subject: str
    severity: Severity
    what: str
    why: str = ""
    fix: tuple[str, ...] = ()
    condition: str | None = None


@dataclass(frozen=True)
class PlannedQuery:
    """The query to check. ``options``: its sink's; ``inputs``: the topics that it reads; ``outputs``: those that it
    writes, without dead letters and ledger; ``longest_stop_s``: for how long it may be stopped; ``principal``: who
    runs it; ``tables``: those that it writes, each by the options that name it; ``storage``: settings of their stores
    and catalogs."""

    options: SinkOptions
    inputs: Sequence[str]
    outputs: Sequence[str]
    longest_stop_s: float
    principal: str
    tables: Sequence[Mapping[str, str]] = ()
    storage: HadoopSettings = field(default_factory=HadoopSettings)

    @property
    def writes_topics(self) -> bool:
        """Whether it has transactions and a ledger, as a query has that does not write to tables alone."""
        return bool(self.outputs) or not self.tables

    @property
    def servers(self) -> str:
        return self.options.kafka.bootstrap_servers


@dataclass(frozen=True)
class Tools:
    """The commands of Kafka's own tools for a cluster."""

    servers: str

    def _command(self, tool: str, *words: str) -> str:
        return shlex.join([tool, "--bootstrap-server", self.servers, *words])

    def set_of_topic(self, topic: str, setting: str) -> str:
        """The command that changes a topic's setting. ``setting``: KEY=VALUE."""
        return self._command(
            "kafka-configs.sh", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", setting
        )

    def create(self, topic: str, brokers: int) -> str:
        """The command that creates a topic, with three replicas, or as many as there are ``brokers``."""
        replicas = min(3, brokers)
        settings = ["--config", f"min.insync.replicas={min(2, replicas)}"]
        return self._command(
            *("kafka-topics.sh", "--create", "--topic", topic, "--partitions", "4"),
            *("--replication-factor", str(replicas), *settings),
        )

    def upgrade(self, feature: str, level: int) -> str:
        """The command that upgrades a feature of the cluster, such as ``transaction.version``."""
        return self._command("kafka-features.sh", "upgrade", "--feature", f"{feature}={level}")


def in_properties(setting: str) -> str:
    """How to change a setting that brokers only read when they start."""
    return f"# in server.properties of every broker, then restart them one by one: {setting}"


_WORST_FIRST = (Severity.ERROR, Severity.UNKNOWN, Severity.WARNING, Severity.OK)
_PLURALS = {Severity.ERROR: "error(s)", Severity.WARNING: "warning(s)"}


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """The findings by severity, the worst first; within a severity in the order of the checks."""
    return sorted(findings, key=lambda finding: _WORST_FIRST.index(finding.severity))


def exit_code(findings: Sequence[Finding]) -> int:
    """1 with an error, else 2 if something could not be determined, else 0."""
    severities = {finding.severity for finding in findings}
    return 1 if Severity.ERROR in severities else 2 if Severity.UNKNOWN in severities else 0


def verdict(findings: Sequence[Finding]) -> str:
    """The last line of a report, with how many findings there are of each severity."""
    counts = {severity: [f.severity for f in findings].count(severity) for severity in _WORST_FIRST}
    counted = ", ".join(f"{count} {_PLURALS.get(severity, severity.value)}" for severity, count in counts.items())
    if counts[Severity.ERROR]:
        return f"The exactly-once requirements are not met here: {counted}."
    if counts[Severity.UNKNOWN]:
        return f"No error was found, but not everything could be checked: {counted}."
    return f"The exactly-once requirements are met here: {counted}."


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "verdict": verdict(findings),
        "findings": [{**asdict(finding), "fix": list(finding.fix)} for finding in in_order(findings)],
    }


def as_text(findings: Sequence[Finding]) -> str:
    """The report as text."""
    width = max(len(severity.value) for severity in Severity)
    lines: list[str] = []
    for finding in in_order(findings):
        word = finding.severity.value.ljust(width)
        lines.append(f"{word}  {finding.subject}: {_what(finding)}")
        indent = " " * (width + 2)
        if finding.severity is not Severity.OK and finding.why:
            lines.append(f"{indent}{finding.why}")
        lines += [f"{indent}$ {fix}" if not fix.startswith("#") else f"{indent}{fix}" for fix in finding.fix]
    return in_lines([*lines, "", verdict(findings)])


def _what(finding: Finding) -> str:
    return f"[{finding.condition}] {finding.what}" if finding.condition else finding.what
