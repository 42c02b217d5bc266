"""Iceberg tables that copies past the JVM write to, by pyiceberg."""
