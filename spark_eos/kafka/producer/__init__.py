"""Producers of one transaction each."""
