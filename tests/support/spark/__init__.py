"""Spark clusters, servers and programs beside the session of the tests."""
