"""Scenarios whose steps a test takes one by one, on the model of brokers."""
