"""Tables as one of the two sides: read by deltalake, or by pyiceberg, at one snapshot. Shares no code with the
writers of tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from spark_eos.base.frozen_settings import Settings
from spark_eos.base.printable import hidden
from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.errors import EosError, stop

_KINDS = ("delta", "iceberg")
_LONGEST = 400
#: Settings whose values are no secrets, by the ends of their names.
_HARMLESS = ("access", "catalog", "enabled", "endpoint", "provider", "region", "type", "uri", "url", "warehouse")


@dataclass(frozen=True)
class TableAddress:
    """``kind``: delta or iceberg; ``name``: the path, or the name in the catalog. ``settings``: ``fs.s3a.…`` of the
    store, ``catalog`` and ``catalog.…`` of Iceberg. Some are secrets, which no repr shows."""

    kind: str
    name: str
    settings: Settings

    @classmethod
    def parse(cls, text: str, settings: Mapping[str, str]) -> TableAddress | None:
        """Parse ``delta:PATH`` or ``iceberg:NAMESPACE.NAME``; None for anything else, such as a topic, which has no
        colon. Raises CommandError (EOS_VERIFY_IMPOSSIBLE)."""
        kind, colon, name = text.partition(":")
        if not colon:
            return None
        if kind not in _KINDS or not name:
            raise stop("EOS_VERIFY_IMPOSSIBLE.address", value=text)
        return cls(kind, name, Settings(settings))

    def open(self) -> Snapshot:
        """Return the table as it is now. Raises UnsupportedError without the library, and CommandError
        (EOS_VERIFY_IMPOSSIBLE)."""
        if self.kind == "delta":
            from spark_eos.tools.verify.tables.delta import DeltaSnapshot

            return DeltaSnapshot(self)
        from spark_eos.tools.verify.tables.iceberg import IcebergSnapshot

        return IcebergSnapshot(self)

    @contextmanager
    def refused(self, secrets: Mapping[str, str] | None = None) -> Iterator[None]:
        """Turn any error of a table's library, its store or Arrow into CommandError (EOS_VERIFY_IMPOSSIBLE), without
        secrets. ``secrets``: further settings."""
        try:
            yield
        except EosError:
            raise
        except Exception as error:
            raise self._failed(error, secrets or {}) from None

    def _failed(self, error: Exception, secrets: Mapping[str, str]) -> EosError:
        given = [*secrets.items(), *self.settings.items()]
        unsafe = [value for name, value in given if not name.lower().endswith(_HARMLESS)]
        text = " ".join(f"{type(error).__name__}: {error}".split())
        text = hidden(text, unsafe, [value for _, value in given])
        text = re.sub(r"//[^/@\s]+@", "//***@", text)
        return stop("EOS_VERIFY_IMPOSSIBLE.table", table=str(self), cause=text[:_LONGEST].rstrip(".:"))

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class Snapshot(Protocol):
    """A table as it was when it was opened. Methods raise CommandError (EOS_VERIFY_IMPOSSIBLE)."""

    @property
    def columns(self) -> Sequence[str]:
        """Names."""

    def rows(self) -> int:
        """Return the number of rows."""

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return all rows with these columns, in no order. Memory does not depend on how many there are."""

    def ends(self, query: str, partitions: Mapping[str, Iterable[int]]) -> PartitionOffsets | None:
        """Return the offsets up to which the table has the records of a query of this library, 0 for a partition that
        it has not read from; None where the table does not know the query."""

    def removals(self) -> list[str]:
        """Return the commits that have removed rows, as far as the table's history tells."""
