"""Tools beside the connector, which imports none of them: a Kafka cluster for development and tests, and a checker of
results."""
