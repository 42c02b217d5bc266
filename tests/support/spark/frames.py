"""Stand-ins for Spark's DataFrame and its writer, as a function of foreachBatch has them."""

from __future__ import annotations


class Writer:
    """As DataFrameWriter. ``given``: its options; ``fails``: what ``save()`` raises."""

    def __init__(self, fails: BaseException | None = None) -> None:
        self.fails = fails
        self.given: dict[str, object] = {}

    def format(self, source: str) -> Writer:
        return self

    mode = format

    def option(self, key: str, value: object) -> Writer:
        return self.options(**{key: value})

    def options(self, **options: object) -> Writer:
        self.given |= options
        return self

    def save(self, path: str | None = None, format: str | None = None, mode: str | None = None, **_: object) -> None:
        if self.fails is not None:
            raise self.fails


class Frame:
    """As DataFrame, with its session and context. ``group``: the thread's job group; None in a thread of the user's
    own, where Spark names no query either. ``fails``: of its writer."""

    def __init__(self, group: str | None = None, fails: BaseException | None = None) -> None:
        known = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "3", "spark.jobGroup.id": group}
        self.sparkSession = self.sparkContext = self
        self.getLocalProperty = (known if group else {}).get
        self.write = Writer(fails)
