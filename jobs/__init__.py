"""Runnable jobs, each a thin main over the library and each with a YAML in ``conf/``.

In a checkout they are the package ``jobs``, in the wheel ``spark_eos.jobs``, so that it brings no top-level name that
other people's packages have. So modules import one another by relative names. ``runner/`` is what the jobs share;
``delta/`` and ``files/`` are what those of Delta tables and of files have beside it.
"""

#: The jobs that `spark-eos run` knows, by module, and what each does.
JOBS = {
    "consume_transform_produce": "topics → SQL or a function → topics",
    "delta_to_kafka": "a Delta table's appends, or its changes in each key's order → topics",
    "kafka_to_delta": "topics → a Delta table: appends, or merges by key",
    "kafka_to_iceberg": "topics → an Iceberg table: appends",
    "ingest_files": "files of a growing folder → a topic, each file once",
    "mirror": "topics of one cluster → another one, record for record",
}
