"""A Delta table at one version, by delta-rs and DataFusion, which know partitions, deletion vectors and mapped columns.

The commits of a query are transactions of the log: ``QUERY``, ``QUERY#digest``, and ``QUERY#TOPIC-N`` with the
end offset of a partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.errors import stop

if TYPE_CHECKING:
    from spark_eos.tools.verify.tables import TableAddress

#: The number of versions of the history that are searched for removed rows.
_VERSIONS = 1000
_REMOVES = {"DELETE", "MERGE", "RESTORE", "TRUNCATE", "UPDATE"}


class DeltaSnapshot:
    """See `spark_eos.tools.verify.tables.Snapshot`."""

    def __init__(self, address: TableAddress) -> None:
        try:
            from deltalake import DeltaTable
        except ImportError:
            raise stop(
                "EOS_NOT_INSTALLED.extra", use=f"Reading {address!s}", modules="deltalake", extra="tables"
            ) from None
        self._address = address
        scheme, colon, rest = address.name.partition("://")
        is_s3 = colon and scheme in ("s3", "s3a", "s3n")
        with self._address.refused():
            uri = f"s3://{rest}" if is_s3 else address.name
            options = _s3_options(rest.partition("/")[0], address.settings) if is_s3 else None
            self._table = DeltaTable(uri, storage_options=options)

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self._table.schema().fields]

    def rows(self) -> int:
        (count,) = (batch.column(0)[0].as_py() for batch in self._query("SELECT count(*) FROM t"))
        return int(count)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        listed = ", ".join('"{}"'.format(name.replace('"', '""')) for name in columns)
        return self._query(f"SELECT {listed} FROM t")

    def _query(self, sql: str) -> Iterator[pa.RecordBatch]:
        from deltalake import QueryBuilder

        with self._address.refused():
            for batch in QueryBuilder().register("t", self._table).execute(sql):
                yield pa.record_batch(batch)

    def ends(self, query: str, partitions: Mapping[str, Iterable[int]]) -> PartitionOffsets | None:
        if self._last(f"{query}#digest") is None:
            return None
        return {topic: {p: self._last(f"{query}#{topic}-{p}") or 0 for p in of} for topic, of in partitions.items()}

    def _last(self, application: str) -> int | None:
        with self._address.refused():
            return self._table.transaction_version(application)

    def removals(self) -> list[str]:
        """Return them by their times: delta-rs gives wrong version numbers where a version is newer than this
        handle's."""
        with self._address.refused():
            removals = [each for each in reversed(self._table.history(_VERSIONS)) if _removes(each)]
        return [f"{each.get('operation')} at {_time(each)}" for each in removals]


def _removes(commit: Mapping[str, Any]) -> bool:
    mode = (commit.get("operationParameters") or {}).get("mode")
    return commit.get("operation") in _REMOVES or mode == "Overwrite"


def _time(commit: Mapping[str, Any]) -> str:
    return f"{datetime.fromtimestamp(int(commit.get('timestamp') or 0) / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _s3_options(bucket: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return options of delta-rs for S3A's settings, as for checkpoints; it finds other ones in the environment."""

    def of(name: str) -> str:
        return settings.get(f"fs.s3a.bucket.{bucket.lower()}.{name}") or settings.get(f"fs.s3a.{name}") or ""

    endpoint = of("endpoint")
    if endpoint and "://" not in endpoint:
        endpoint = ("http://" if of("connection.ssl.enabled") == "false" else "https://") + endpoint
    options = {
        "aws_access_key_id": of("access.key"),
        "aws_secret_access_key": of("secret.key"),
        "aws_session_token": of("session.token"),
        "aws_region": of("endpoint.region"),
        "aws_endpoint_url": endpoint,
        "aws_allow_http": "true" if endpoint.startswith("http://") else "",
        "aws_virtual_hosted_style_request": "false" if of("path.style.access") == "true" else "",
        "aws_skip_signature": "true" if "Anonymous" in of("aws.credentials.provider") else "",
    }
    return {name: value for name, value in options.items() if value} | {"timeout": "60s", "connect_timeout": "5s"}
