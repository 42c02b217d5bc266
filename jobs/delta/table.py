"""Delta tables as merges see them: the session that knows Delta; a table's properties, columns, finished batches."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.tables.delta.memory import MERGES
from spark_eos.pipelines.tables.micro_batch import check_start

from ..runner.values import Rejected

_EXTENSION, _EXTENSIONS = "io.delta.sql.DeltaSparkSessionExtension", "spark.sql.extensions"
_CATALOG = {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"}
TXN_APP_ID, TXN_VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"

#: Settings of a session by which rows are silently lost, and the values that do no harm. Where there is none, any
#: value does.
_UNSAFE: Mapping[str, str | None] = {
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    TXN_APP_ID: None,
    TXN_VERSION: None,
}
#: Lines of a commit that are no files.
_FEW = re.compile(r'\{"(?:commitInfo|txn)":')
_RETENTION = "delta.setTransactionRetentionDuration"


def check_settings(spark: Mapping[str, str]) -> None:
    """Check the section ``spark`` of a job that merges. Raises Rejected."""
    for name, harmless in _UNSAFE.items():
        if name in spark and spark[name].lower() != harmless:
            raise Rejected("makes rows disappear without an error.", "Remove it.", ["spark", name])


def with_delta(spark: Mapping[str, str]) -> dict[str, str]:
    """Add Delta's extension and catalog to the settings of a session."""
    extensions = [name for name in spark.get(_EXTENSIONS, "").split(",") if name.strip()]
    if _EXTENSION not in extensions:
        extensions.append(_EXTENSION)
    return _CATALOG | dict(spark) | {_EXTENSIONS: ",".join(extensions)}


def check_session(spark: SparkSession) -> None:
    """Check that Delta's jar is loaded, the session has Delta's extension, and no setting of spark-submit or the
    cluster makes rows disappear.

    Raises UnsupportedError.
    """
    loaded = _jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
    is_there = loaded.getResource("org/apache/spark/sql/delta/DeltaLog.class") is not None
    if not is_there or _EXTENSION not in (spark.conf.get(_EXTENSIONS, "") or ""):
        raise stop("EOS_NOT_INSTALLED.delta")
    for name, harmless in _UNSAFE.items():
        value = spark.conf.get(name, harmless)
        if value is not None and value.lower() != harmless:
            raise stop("EOS_DELTA_TABLE_SETTINGS.session", setting=name, value=value)


@dataclass(frozen=True)
class TableCommit:
    """A commit of a table: its version, and its metadata by Delta."""

    version: int
    info: Mapping[str, Any]

    @property
    def user_metadata(self) -> str | None:
        return self.info.get("userMetadata")

    def metric(self, name: str) -> int | None:
        """Return a number of the operation's metrics; None where Delta has not written it."""
        metric = (self.info.get("operationMetrics") or {}).get(name)
        return None if metric is None else int(metric)


class TableVersion:
    """A table as it is at one version of it."""

    def __init__(self, snapshot: Any) -> None:  # noqa: ANN401  # Py4J's view of the JVM
        self._snapshot = snapshot
        self.version: int = snapshot.version()
        self.id: str = snapshot.metadata().id()

    def last_batch(self, application: str) -> int | None:
        """Return the last batch that this application has committed."""
        version = self._snapshot.transactions().get(application)
        return int(version.get()) if version.isDefined() else None


@dataclass(frozen=True)
class MergedTable:
    """The Delta table at a path."""

    spark: SparkSession
    path: str

    def exists(self) -> bool:
        from delta.tables import DeltaTable  # which appends do not need

        return DeltaTable.isDeltaTable(self.spark, self.path)

    def has_log(self) -> bool:
        """Return whether the folder of the table's log is there. A process that was killed while it created the table
        leaves it without a version."""
        log = self._log().logPath()
        hadoop = self.spark._jsparkSession.sessionState().newHadoopConf()
        return bool(log.getFileSystem(hadoop).exists(log))

    def properties(self) -> dict[str, str]:
        return dict(self.spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect())

    def schema(self) -> StructType:
        return self.spark.read.format("delta").load(self.path).schema

    def state(self) -> TableVersion | None:
        """Return the table by its log as it is now; None where there is none."""
        log = self._log()
        snapshot = log.update(*(getattr(log, f"update$default${n}")() for n in (1, 2, 3)))
        return None if snapshot.version() < 0 else TableVersion(snapshot)

    def last_batch(self, application: str) -> int | None:
        """Return the last batch that this application has committed to the table, by the table's log as it is now."""
        state = self.state()
        return None if state is None else state.last_batch(application)

    def commit_of(self, application: str, batch: int, *, newest: int, oldest: int = 0) -> TableCommit | None:
        """Return the commit by which this application has written a batch, among these versions; None where there is
        none, or it is no longer in the log."""
        log, jvm = self._log(), _jvm(self.spark)
        hadoop = self.spark._jsparkSession.sessionState().newHadoopConf()
        for version in range(newest, oldest - 1, -1):
            file = jvm.org.apache.hadoop.fs.Path(log.logPath(), f"{version:020d}.json")
            try:
                text: str = log.store().read(file, hadoop).mkString("\n")
            except (Py4JJavaError, PySparkException) as error:
                if "FileNotFoundException" in str(error):
                    return None
                raise
            actions: list[dict[str, Any]] = [json.loads(line) for line in text.split("\n") if _FEW.match(line)]
            done = [action["txn"] for action in actions if "txn" in action]
            if any(each["appId"] == application and each["version"] == batch for each in done):
                return TableCommit(version, next((each["commitInfo"] for each in actions if "commitInfo" in each), {}))
        return None

    def _log(self) -> Any:  # noqa: ANN401  # Py4J's view of the JVM
        return _jvm(self.spark).org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self.path)

    @property
    def address(self) -> str:
        """The path with the file system that the session resolves it by, unless that is local."""
        path = _jvm(self.spark).org.apache.hadoop.fs.Path(self.path)
        files = path.getFileSystem(self.spark._jsparkSession.sessionState().newHadoopConf())
        return str(files.makeQualified(path).toString()).removeprefix("file:")

    @property
    def name(self) -> str:
        """The table's name in SQL."""
        return f"delta.{quoted(self.path)}"

    def check_remembers(self) -> None:
        """Check that the table does not forget which batches it has. Raises TableError."""
        duration = self.properties().get(_RETENTION)
        if duration is not None:
            raise stop("EOS_DELTA_TABLE_SETTINGS.forgets", path=self.path, duration=duration, name=self.name)


def check_batches(table: MergedTable, location: str) -> None:
    """Check that checkpoint and table belong together: neither has been put back to an earlier state, or replaced.

    Raises TableError, and CheckpointError where the checkpoint cannot be read.
    """
    checkpoint = Checkpoint(location, HadoopSettings.from_session(table.spark))
    query = checkpoint.query_id()
    if query is None:
        return
    finished, planned = checkpoint.last_batch("commits"), checkpoint.last_batch("offsets")
    check_start(table.path, table.last_batch(MERGES.format(query)), finished=finished, planned=planned)


def no_table(path: str, more: str = "") -> EosError:
    return stop("EOS_DELTA_NO_TABLE.path", path=path, at=f" at {path}{more}")


def create(table: MergedTable, schema: StructType, partitions: Sequence[str], properties: Mapping[str, str]) -> None:
    """Create the table where there is none. Raises TableError for a property by which each later start would be
    refused."""
    from delta.tables import DeltaTable

    if _RETENTION in properties:
        given = f"{_RETENTION}={properties[_RETENTION]}"
        raise stop("EOS_DELTA_TABLE_SETTINGS.new", path=table.path, properties=given)
    if table.has_log():  # Delta's builder assumes that the table exists, and then does not find it
        empty = table.spark.createDataFrame([], nullable(schema)).write.format("delta").mode("append")
        empty.partitionBy(*partitions).options(**properties).save(table.path)
        return
    builder = DeltaTable.createIfNotExists(table.spark).location(table.path).addColumns(nullable(schema))
    if partitions:
        builder = builder.partitionedBy(*partitions)
    for key, value in properties.items():
        builder = builder.property(key, value)
    builder.execute()


def check_names(rows: StructType) -> None:
    """Check that no two columns have the same name; Delta ignores case. Raises TableError."""
    names = [field.name.lower() for field in rows]
    twice = [field.name for field in rows if names.count(field.name.lower()) > 1]
    if twice:
        raise stop("EOS_DELTA_COLUMNS.twice", names=", ".join(twice))


def fit(table: MergedTable, schema: StructType, *, evolve: bool) -> None:
    """Check that the table has exactly these columns. With ``evolve``, it may have others, and gets the ones that it
    lacks.

    Raises TableError.
    """
    there = {field.name.lower(): field for field in table.schema()}
    requested = {field.name.lower(): field for field in schema}
    new = [field for name, field in requested.items() if name not in there]
    gone = [field.name for name, field in there.items() if name not in requested]
    changed = [
        f"{field.name} is {there[name].dataType.simpleString()} in the table, and {field.dataType.simpleString()} here"
        for name, field in requested.items()
        if name in there and nullable_type(there[name]) != nullable_type(field)
    ]
    changes = [*changed]
    if not evolve:
        changes += [f"the table has no {field.name}" for field in new]
        changes += [f"the result has no {name}" for name in gone]
    if changes:
        or_evolve = "" if changed else ", or set 'target.schema: evolve': new columns are then added to the table"
        raise stop("EOS_DELTA_COLUMNS.fixed", path=table.path, differences="; ".join(changes), or_evolve=or_evolve)
    if new:
        added = table.spark.createDataFrame([], nullable(StructType(new)))
        added.write.format("delta").mode("append").option("mergeSchema", "true").save(table.path)


def nullable(schema: StructType) -> StructType:
    """Return the columns as nullable ones, as Delta stores rows of a stream."""
    return StructType([StructField(field.name, nullable_type(field)) for field in schema])


def nullable_type(field: StructField) -> Any:  # noqa: ANN401  # PySpark's types have no common public name here
    """Return the field's type, with everything in it nullable."""
    return StructType.fromJson(_all_nullable(StructType([field]).jsonValue()))[0].dataType


def _all_nullable(node: Any) -> Any:  # noqa: ANN401  # JSON
    if isinstance(node, dict):
        flags = ("nullable", "containsNull", "valueContainsNull")
        return {
            key: True if key in flags else {} if key == "metadata" else _all_nullable(value)
            for key, value in node.items()
        }
    return [_all_nullable(item) for item in node] if isinstance(node, list) else node


def quoted(name: str) -> str:
    """Quote a name for SQL."""
    return "`" + name.replace("`", "``") + "`"


def _jvm(spark: SparkSession) -> Any:  # noqa: ANN401  # Py4J's view of the JVM
    return spark._jvm
