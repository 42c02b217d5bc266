"""From topics to a table: Spark hands out ranges of offsets, tasks write files, the driver commits them together."""
