"""The entry points that Spark and users call, above source and sink; both use `spark_eos.spark`."""
