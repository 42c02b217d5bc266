"""Parts of the jobs from topics to a table: sections of their files, and a query that goes past the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from spark_eos.base.frozen_settings import texts
from spark_eos.checkpoint.settings import of_spark
from spark_eos.errors import EosError
from spark_eos.pipelines.copy.start import name_of
from spark_eos.pipelines.copy.table.options import table_options
from spark_eos.pipelines.copy.table.start import check, transform_of

from .checks import PY_FILES, Check, JobCluster
from .job import Plan, is_new, query_plan
from .models import QueryJob, Section
from .options import begins, only_topic, option, selected, source_of, source_options_of, topics_of
from .transforms import DecodedTransform
from .values import Properties, unknown

if TYPE_CHECKING:
    from spark_eos.pipelines.registry.decoding import Decoding


class IntoTableTransform(DecodedTransform):
    """Section ``malformed`` of a job that has no topic for dead letters."""

    #: How to handle a value that does not match the schema, or a record that a transform past the JVM
    #: [rejects](copy.md#records-that-a-transform-rejects): [fail](job.md#parsing), or leave it out.
    on_malformed: Literal["fail", "drop"] = "fail"


class TableSection(Section, extra="allow"):
    """The section ``target``. Besides the keys of its model it has properties, whose names begin with ``prefix``."""

    __pydantic_extra__: dict[str, str]

    prefix: ClassVar[str]

    #: How to handle columns of the result that the table lacks: `fail`, or `evolve`, by which they are [added to the
    #: table](delta.md#new-columns) when the job starts.
    evolution: Literal["fail", "evolve"] = Field("fail", alias="schema")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: object) -> object:
        keys = cls.key_names()
        for name in data if isinstance(data, dict) else ():
            if name not in keys and not name.startswith(cls.prefix):
                raise unknown(name, [*keys, f"{cls.prefix}…"], [name])
        return data

    @property
    def properties(self) -> dict[str, str]:
        """The properties by name, with the prefix. Some may be secrets."""
        return self.__pydantic_extra__

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        return ((name, value) for name, value in super().__repr_args__() if name not in self.properties)


class IntoTable(QueryJob):
    """The file of a job from topics to a table."""

    #: [Options of the source](options.md#source). `startingOffsets` is `earliest` by default; `offsets.group.id` names
    #: a group that is told how far the query is.
    source: Properties
    #: Without it, the source's columns are appended as they are, with headers.
    transform: IntoTableTransform | None = None

    @model_validator(mode="after")
    def _subjects(self) -> Self:
        if self.transform is not None:
            self.transform.check_subjects(only_topic(self.source))
        return self

    def source_options(self) -> dict[str, str]:
        """Return every option of the source, by its name. Without a transformation, headers are for the table, too."""
        headers = {"includeHeaders": "true"} if self.transform is None else {}
        return headers | source_options_of(self.kafka, self.source)

    def decodings(self, spark: SparkSession) -> dict[str, Decoding]:
        """Return decoders of values and keys with schemas of a registry. Raises EosError."""
        if self.transform is None:
            return {}
        return self.transform.decodings(spark, self.checkpoint, only_topic(self.source))

    def start_copy(self, spark: SparkSession, sink: Mapping[str, object]) -> StreamingQuery:
        """Return the query whose tasks write the table's files. ``sink``: its options. Raises EosError."""
        transform = self.transform
        return spark_eos.copy(
            spark,
            source=self.source_options(),
            sink=sink,
            checkpoint=self.checkpoint,
            transform=None if transform is None else transform.past_spark(),
            trigger=self.trigger_arguments,
            on_malformed="fail" if transform is None else transform.on_malformed,
            decode=None if transform is None else self.decodings(spark),
        )

    def table_check(self, sink: Mapping[str, object]) -> Check:
        """Return the copy's checks of the table and its columns. ``sink``: options of the sink."""
        return Check(
            f"the table {sink.get('path') or sink.get('table')}, and its columns", lambda: self._try_copy(sink)
        )

    def _try_copy(self, sink: Mapping[str, object]) -> None:
        transform = self.transform
        decodes = transform is not None and (transform.decodes or PY_FILES in self.spark)
        function = None if transform is None or decodes else transform.function_past_spark()
        malformed = "fail" if transform is None or decodes else transform.on_malformed
        rows = transform_of(function, None if function is None else name_of(function), malformed)
        options = table_options(texts(sink), of_spark(self.spark))
        check(self.source_options(), options, self.checkpoint, rows, decodes=decodes)


def table_plan(
    config: IntoTable,
    what: str,
    start: Callable[[SparkSession], StreamingQuery],
    *,
    spark: Mapping[str, str] | None = None,
    named: Callable[[BaseException], EosError | None] = lambda error: None,
    checks: Sequence[Check] = (),
) -> Plan:
    """Plan one streaming query from the topics to the table. ``what``: describes what it does with the rows; for the
    other parameters, see `query_plan`. Raises OptionError and SchemaError."""
    reads = source_of(config.source, config.source_options())
    if config.transform is not None:
        config.transform.check_before_spark(reads)
    topics, group = topics_of(reads), option(config.source, "offsets.group.id")
    return query_plan(
        config,
        f"{selected(reads)} → {what}; {f'group {group}' if group else 'no group'}",
        [JobCluster(reads.kafka, topics, topics if is_new(config) else [])],
        start,
        begins(reads, config.source_options()),
        spark=spark,
        named=named,
        checks=checks,
    )
