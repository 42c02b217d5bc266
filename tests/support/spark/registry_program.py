"""A client of Spark Connect: python -m tests.support.spark.registry_program REMOTE SERVERS TOPIC TARGET REGISTRY

Reads the topic's values with the registry's schema, writes them to the target with that of another subject, and prints
what it has read as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, struct

import spark_eos
from spark_eos.pipelines.registry import from_registry, to_registry

#: The schema of what is written.
COPY = {
    "kind": "json-schema",
    "schema": json.dumps(
        {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "name": {"type": ["null", "string"]}},
            "required": ["id"],
        }
    ),
}


def main(remote: str, servers: str, topic: str, target: str, registry: str) -> None:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    spark_eos.register(spark)
    options = {"kafka.bootstrap.servers": servers}
    records = spark.read.format("eos-kafka").options(**options, subscribe=topic).load()
    orders = records.select(from_registry("value", registry, topic=topic).alias("order"))
    print(json.dumps([row.asDict(recursive=True)["order"] for row in orders.collect()]))
    copies = orders.where("order is not null").select(
        to_registry(struct(col("order.id"), col("order.name")), registry, topic=target, **COPY).alias("value")
    )
    copies.write.format("eos-kafka").options(**options, topic=target).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
