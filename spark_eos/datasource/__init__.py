"""The roof: what Spark and users call, above source and sink; `spark_eos.spark` is what both stand on."""
