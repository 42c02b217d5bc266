"""What stands beside the connector, which imports none of it: a cluster for tries and tests, a checker of results."""
