"""The ledger, and the other ports of ``spark_eos.protocol``, on real brokers."""
