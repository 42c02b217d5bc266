"""The client of a task that reads, and the options of the source that concern it."""

from __future__ import annotations

from dataclasses import dataclass

from spark_eos.kafka.config.properties import Isolation
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import MAX_DECOMPRESSED_BYTES, SourceOptions


@dataclass(frozen=True)
class Fetching:
    """Settings of a task that reads. ``client``: of the cluster with the topics; ``poll_timeout_s``: seconds without
    progress after which the task fails; ``max_decompressed_bytes``: of a record batch, decompressed."""

    client: BrokerClient
    isolation: Isolation = "read_committed"
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_s: float = 60.0
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES

    @classmethod
    def from_options(cls, client: BrokerClient, options: SourceOptions) -> Fetching:
        """Take the options of a source that concern its tasks."""
        return cls(
            client,
            options.isolation,
            options.include_headers,
            options.fail_on_data_loss,
            options.poll_timeout_ms / 1000,
            options.max_decompressed_bytes,
        )
