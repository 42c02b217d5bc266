"""A program with a query that works and one that fails, which tells all that Spark tells about them.

``python event_program.py FOLDER < what``: JSON with ``good`` and ``bad``, the ``kafka.*`` options of each,
``input``, ``output``, and ``redacted``, a regular expression for Spark. Event log, checkpoints, Spark's own log and
files are in the folder; plans and progress are printed.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from tests.support.waiting import TIMEOUT

#: All of it; to a file, as Spark holds back what goes to a terminal.
_LOG = """
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {folder}/spark.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n%ex
"""


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    import spark_eos

    what = json.load(sys.stdin)
    events = folder / "events"
    events.mkdir()
    (folder / "log4j2.properties").write_text(_LOG.format(folder=folder))
    os.environ["SPARK_CONF_DIR"] = str(folder)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", events.as_uri())
        .config("spark.sql.redaction.options.regex", what["redacted"])
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("INFO")
    spark_eos.register(spark)
    for name in ("good", "bad"):
        kafka = {f"kafka.{key}": value for key, value in what[name].items()}
        source = spark.readStream.format("eos-kafka").options(**kafka, subscribe=what["input"])
        rows = source.option("startingOffsets", "earliest").load().selectExpr("upper(string(value)) AS value")
        rows.explain(extended=True)
        writer = rows.writeStream.format("eos-kafka").options(**kafka, topic=what["output"])
        checkpoint = str(folder / "checkpoints" / name)
        writer = writer.options(**{"checkpointLocation": checkpoint, "offsets.group.id": "telltale"})
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(TIMEOUT)
            print(f"{name}: done")
        except Exception as error:
            print(f"{name}: failed", spark_eos.reason(error))
            traceback.print_exc()
        query.explain(extended=True)
        print(query.lastProgress, query.status, query.exception())
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
