"""``spark-eos plot`` and ``spark-eos top``: a query seen from its events (`spark_eos.ops.metrics`)."""
