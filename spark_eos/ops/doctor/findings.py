"""The query that the doctor checks, its findings, and how they are printed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

from spark_eos.base.printable import in_lines
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import SinkOptions


class Severity(StrEnum):
    """Severity of a finding. ``ERROR``: rows can be lost or doubled, or the query cannot run. ``WARNING``: if something
    else fails, too, the query stops, or cannot tell whether its rows are committed. ``UNKNOWN``: it could not be
    determined."""

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"
    OK = "ok"


ERROR, WARNING, UNKNOWN, OK = Severity.ERROR, Severity.WARNING, Severity.UNKNOWN, Severity.OK


@dataclass(frozen=True)
class Finding:
    """The result of a check. ``check``: its name, for scripts; ``subject``: the topic, broker or user; ``what``: its
    state; ``why``: how that can lose or double rows, or stop the query; ``fix``: commands that correct it;
    ``condition``: of the sink's own check, if that has failed."""

    check: str
    subject: str
    severity: Severity
    what: str
    why: str = ""
    fix: tuple[str, ...] = ()
    condition: str | None = None


@dataclass(frozen=True)
class Fault:
    """A fault that a check may find. ``what``: the state, where the check's own words for it do not fit; the rest as in
    `Finding`."""

    severity: Severity
    why: str
    fix: str = ""
    what: str = ""


def finding(check: str, subject: str, what: str, *faults: Fault | Literal[False]) -> Finding:
    """Return the finding of a check with the first of these faults that it has, or else that all is well."""
    for fault in faults:
        if fault:
            return Finding(
                check, subject, fault.severity, fault.what or what, fault.why, (fault.fix,) if fault.fix else ()
            )
    return Finding(check, subject, OK, what)


@dataclass(frozen=True)
class PlannedQuery:
    """The query to check. ``client``: of its cluster; ``options``: its sink's; ``inputs``: the topics that it reads;
    ``outputs``: the topics that it writes, without dead letters and ledger; ``longest_stop_s``: for how long it may be
    stopped; ``principal``: the user that runs it; ``tables``: the tables that it writes, each by the options that name
    it; ``storage``: settings of their stores and catalogs."""

    client: BrokerClient
    options: SinkOptions
    inputs: Sequence[str]
    outputs: Sequence[str]
    longest_stop_s: float
    principal: str
    tables: Sequence[Mapping[str, str]] = ()
    storage: HadoopSettings = field(default_factory=HadoopSettings)

    @property
    def writes_topics(self) -> bool:
        """True if it has transactions and a ledger, as a query has that does not write to tables alone."""
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
        """Return the command that changes a topic's setting. ``setting``: KEY=VALUE."""
        entity = ("--alter", "--entity-type", "topics", "--entity-name", topic)
        return self._command("kafka-configs.sh", *entity, "--add-config", setting)

    def create(self, topic: str, brokers: int) -> str:
        """Return the command that creates a topic, with three replicas, or as many as there are ``brokers``."""
        replicas = min(3, brokers)
        sizes = ("--partitions", "4", "--replication-factor", str(replicas))
        in_sync = f"min.insync.replicas={min(2, replicas)}"
        return self._command("kafka-topics.sh", "--create", "--topic", topic, *sizes, "--config", in_sync)

    def upgrade(self, feature: str, level: int) -> str:
        """Return the command that upgrades a feature of the cluster, such as ``transaction.version``."""
        return self._command("kafka-features.sh", "upgrade", "--feature", f"{feature}={level}")


def in_properties(setting: str) -> str:
    """Return how to change a setting that brokers only read when they start."""
    return f"# in server.properties of every broker, then restart them one by one: {setting}"


_WORST_FIRST = (ERROR, UNKNOWN, WARNING, OK)
_PLURALS = {ERROR: "error(s)", WARNING: "warning(s)"}


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings by severity, the worst first; within a severity in the order of the checks."""
    return sorted(findings, key=lambda each: _WORST_FIRST.index(each.severity))


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 with an error, else 2 if something could not be determined, else 0."""
    severities = {each.severity for each in findings}
    return 1 if ERROR in severities else 2 if UNKNOWN in severities else 0


def verdict(findings: Sequence[Finding]) -> str:
    """Return the last line of a report, with how many findings there are of each severity."""
    counts = {severity: sum(each.severity is severity for each in findings) for severity in _WORST_FIRST}
    counted = ", ".join(f"{count} {_PLURALS.get(severity, severity.value)}" for severity, count in counts.items())
    if counts[ERROR]:
        return f"The exactly-once requirements are not met here: {counted}."
    if counts[UNKNOWN]:
        return f"No error was found, but not everything could be checked: {counted}."
    return f"The exactly-once requirements are met here: {counted}."


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the report as JSON."""
    ordered = [{**asdict(each), "fix": list(each.fix)} for each in in_order(findings)]
    return {"verdict": verdict(findings), "findings": ordered}


def as_text(findings: Sequence[Finding]) -> str:
    """Return the report as text."""
    lines: list[str] = []
    for each in in_order(findings):
        condition = f"[{each.condition}] " if each.condition else ""
        lines.append(f"{each.severity.value:<7}  {each.subject}: {condition}{each.what}")
        if each.severity is not OK and each.why:
            lines.append(f"         {each.why}")
        lines += [f"         {fix if fix.startswith('#') else f'$ {fix}'}" for fix in each.fix]
    return in_lines([*lines, "", verdict(findings)])
