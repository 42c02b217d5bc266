"""The brokers' settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_eos.errors import stop

#: The settings that make the brokers one cluster on loopback ports; users may choose all others.
_OWN = frozenset(
    {
        "process.roles",
        "node.id",
        "listeners",
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
    }
)


def check(config: Mapping[str, str]) -> None:
    """Raise DevClusterError (EOS_DEVCLUSTER_CONFIG) for settings that are reserved for the cluster."""
    for key in config:
        if key in _OWN:
            raise stop("EOS_DEVCLUSTER_CONFIG.setting", key=key)


@dataclass(frozen=True)
class Listener:
    """One more listener of a broker. ``advertised``: where its clients are sent to, a proxy's port or its own."""

    protocol: str
    port: int
    advertised: int


def broker_settings(
    node_id: int,
    ports: list[int],
    controller_ports: list[int],
    data: Path,
    listeners: Mapping[str, Listener] | None = None,
) -> dict[str, str]:
    """Return the settings of one broker, which is a controller, too; the lists have a port for every broker of the
    cluster.

    ``listeners``: by name, without PLAINTEXT and CONTROLLER.
    """
    size = len(ports)
    plain = f"PLAINTEXT://127.0.0.1:{ports[node_id]}"
    voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(controller_ports))
    own = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"{plain},CONTROLLER://127.0.0.1:{controller_ports[node_id]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "log.dirs": str(data),
    }
    if listeners:
        more = listeners.items()
        own["listeners"] += "".join(f",{name}://127.0.0.1:{at.port}" for name, at in more)
        own["advertised.listeners"] = plain + "".join(f",{name}://127.0.0.1:{at.advertised}" for name, at in more)
        own["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT" + "".join(
            f",{name}:{at.protocol}" for name, at in more
        )
    return own | _small(min(3, size), min(2, size))


def _small(replication: int, min_in_sync: int) -> dict[str, str]:
    """Return defaults for a cluster that starts fast, holds little, and is killed often."""
    return {
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(replication),
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": str(replication),
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": str(replication),
        "transaction.state.log.min.isr": str(min_in_sync),
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": str(replication),
        "share.coordinator.state.topic.min.isr": str(min_in_sync),
        "group.initial.rebalance.delay.ms": "0",
        # A killed broker may register again only after its old session has ended, 9 s by default. With less than this,
        # one that a busy machine keeps from answering for some seconds would be taken for dead.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "2000",
        # The default of 128 MB would be taken from the heap at once.
        "log.cleaner.dedupe.buffer.size": str(8 * 1024 * 1024),
    }


def properties(settings: Mapping[str, str]) -> str:
    """Return the settings as a Java properties file."""
    return "".join(f"{key}={_escaped(str(value))}\n" for key, value in settings.items())


def _escaped(value: str) -> str:
    # Java takes a backslash as the start of an escape, a line's end as the value's end, and bytes as ISO 8859-1.
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
    units = escaped.encode("utf-16-be", "surrogatepass")
    characters = (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
    return "".join(chr(c) if c < 0x80 else f"\\u{c:04x}" for c in characters)
