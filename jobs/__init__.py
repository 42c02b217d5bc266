"""Runnable jobs, each a thin main over the library and each with a YAML in ``conf/``.

In a checkout they are the package ``jobs``, in the wheel ``spark_eos.jobs``, which avoids a top-level name that other
packages may have. So modules import one another by relative names. ``runner/`` is shared by all jobs, ``delta/`` and
``files/`` by the jobs for Delta tables and for files.
"""

#: Jobs of `spark-eos run`: module → description.
JOBS = {
    "consume_transform_produce": "topics → SQL or a function → topics",
    "delta_to_kafka": "a Delta table's appends, or its changes in each key's order → topics",
    "kafka_to_delta": "topics → a Delta table: appends, or merges by key",
    "kafka_to_iceberg": "topics → an Iceberg table: appends",
    "ingest_files": "files of a growing folder → a topic, each file once",
    "mirror": "topics of one cluster → another one, record for record",
}
