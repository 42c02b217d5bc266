"""What the doctor finds, and what it was asked."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from spark_eos.options.parse import SinkOptions


class Severity(StrEnum):
    """``ERROR``: rows can be lost or doubled, or the query does not run. ``WARNING``: it stops, or loses its evidence,
    where something else fails as well. ``UNKNOWN``: nobody could tell."""

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    """``check`` names what was looked at, for scripts; ``subject`` of whom. ``what`` was found, ``why`` that can lose
    or double rows, or stop the query, and ``fix``: commands that mend it. ``condition`` is that of the library's own
    check, if one has judged."""

    check: str
    subject: str
    severity: Severity
    what: str
    why: str = ""
    fix: tuple[str, ...] = ()
    condition: str | None = None


@dataclass(frozen=True)
class PlannedQuery:
    """The query, as the sink would have it (``options``), what it reads and all that it writes to (without dead letters
    and ledger). ``longest_stop_s``: for how long it may be stopped. ``trial``: transactional ids may be tried."""

    options: SinkOptions
    inputs: Sequence[str]
    outputs: Sequence[str]
    longest_stop_s: float
    trial: bool
    principal: str

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
        """``setting``: KEY=VALUE."""
        return self._command(
            "kafka-configs.sh", "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", setting
        )

    def create(self, topic: str, brokers: int) -> str:
        """For a new topic: replicated as far as so many brokers allow, at most three times."""
        replicas = min(3, brokers)
        settings = ["--config", f"min.insync.replicas={min(2, replicas)}"]
        return self._command(
            *("kafka-topics.sh", "--create", "--topic", topic, "--partitions", "4"),
            *("--replication-factor", str(replicas), *settings),
        )

    def reassign(self, file: str) -> str:
        """``file``: the plan, as JSON."""
        return self._command("kafka-reassign-partitions.sh", "--reassignment-json-file", file, "--execute")

    def upgrade(self, feature: str, level: int) -> str:
        """The command that upgrades a feature of the cluster, such as ``transaction.version``."""
        return self._command("kafka-features.sh", "upgrade", "--feature", f"{feature}={level}")


def in_properties(setting: str) -> str:
    """What a broker takes only when it starts."""
    return f"# in server.properties of every broker, then restart them one by one: {setting}"


def duration(duration_s: float) -> str:
    """A duration as people write it."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if duration_s >= size:
            return f"{duration_s / size:.4g} {unit}"
    return f"{duration_s:.3g} s"
