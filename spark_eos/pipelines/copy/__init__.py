"""Ranges instead of rows: Spark plans, schedules and checkpoints ranges of offsets, and the sink's tasks fetch,
transform or copy, and produce. No row crosses between the JVM and Python.
"""
