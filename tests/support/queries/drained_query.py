"""Queries, for tests in one Spark session: run until their input is drained, stopped, or run again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

from tests.support.waiting import TIMEOUT


class Drained(ABC):
    """A query and its checkpoint; ``run`` may be called again and again. Arguments are those of ``start``."""

    checkpoint: Path

    @abstractmethod
    def start(self, *arguments: Any, **options: Any) -> StreamingQuery:
        """The query, which ends by itself."""

    def run(self, *arguments: Any, **options: Any) -> str:
        """Until the input is drained; the query's id."""
        query = self.start(*arguments, **options)
        try:
            assert query.awaitTermination(TIMEOUT), "the query does not end"
        finally:
            query.stop()
        return query.id

    def stopped_by(self, condition: str, *arguments: Any, **options: Any) -> str:
        """Run, and expect an error of a running query: its text."""
        with pytest.raises(StreamingQueryException, match=condition) as caught:
            self.start(*arguments, **options).awaitTermination(TIMEOUT)
        return str(caught.value)

    def forget(self, batch: int) -> None:
        """Make Spark believe that it has not seen the end of a micro-batch."""
        forget(self.checkpoint, batch)


def forget(checkpoint: Path, batch: int) -> None:
    """Remove the files by which Spark knows that a micro-batch is committed."""
    (checkpoint / "commits" / str(batch)).unlink()
    (checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)
