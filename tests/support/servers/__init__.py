"""Servers that tests start: brokers, registries, stores and catalogs, and faults in front of them."""
