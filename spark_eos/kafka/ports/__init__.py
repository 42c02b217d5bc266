"""The ports of ``spark_eos.protocol``, by real brokers."""
