"""Kafka → Iceberg table, exactly once: appends the rows of topics to a table, past the JVM.

    python -m jobs.kafka_to_iceberg --conf conf/kafka_to_iceberg.yaml
    spark-submit jobs/kafka_to_iceberg.py --conf conf/kafka_to_iceberg.yaml
    spark-eos run kafka_to_iceberg --conf job.yaml

docs/iceberg.md describes the config file.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import ClassVar

if __name__ == "__main__":
    script = ".runner.script" if __package__ else "runner.script"
    importlib.import_module(script, __package__).begin(__file__, __package__)

from spark_eos.pipelines.copy.table.options import table_options

from .runner.into_table import IntoTable, IntoTableTransform, TableSection, table_plan
from .runner.job import JobCommand, Plan
from .runner.options import located
from .runner.transforms import DuckdbTransform
from .runner.values import SnapshotId, Text


class IcebergTransform(IntoTableTransform, DuckdbTransform):
    """Without dead letters, and past the JVM."""


class IcebergTable(TableSection):
    """The table: [options of the sink](iceberg.md). Further keys are properties ``catalog.…`` of its catalog."""

    prefix: ClassVar[str] = "catalog."

    #: The table's name in its catalog, `NAMESPACE.NAME`. Both are created where there are none.
    table: Text
    #: The catalog's name, by which pyiceberg finds it in its file and environment. `catalog.…` keys are its
    #: [properties](iceberg.md).
    catalog: Text = "default"
    #: List of the [partition fields](iceberg.md#partitions) of a table that the job creates, such as `day(timestamp)`.
    partition_by: tuple[Text, ...] = ()
    #: The query's snapshot that a rollback has removed, after which the job continues.
    after_rollback: SnapshotId | None = None

    def options(self) -> dict[str, str]:
        """Return options of the sink, by their names."""
        named = {"format": "iceberg", "table": self.table, "catalog": self.catalog, "schema": self.evolution}
        named |= self.properties
        if self.partition_by:
            named["partitionBy"] = ",".join(self.partition_by)
        if self.after_rollback is not None:
            named["afterRollback"] = str(self.after_rollback)
        return named


class KafkaToIceberg(IntoTable):
    """The config file of this job."""

    transform: IcebergTransform | None = None
    target: IcebergTable


def plan(config: KafkaToIceberg, args: argparse.Namespace) -> Plan:
    """Plan one streaming query from the topics to the table."""
    target, sink = config.target, config.target.options()
    options = located(lambda: table_options(sink, {}), "target", target.key_names(), sink)
    options.reference(options.storage)  # whether pyiceberg is there
    what = f"appended to {target.table} in the catalog {target.catalog}"
    return table_plan(config, what, lambda spark: config.start_copy(spark, sink), checks=[config.table_check(sink)])


main = JobCommand("kafka_to_iceberg", __doc__, KafkaToIceberg, plan).main

if __name__ == "__main__":
    sys.exit(main())
