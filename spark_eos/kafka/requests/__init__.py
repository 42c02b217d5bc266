"""Kafka's requests, one file each."""
