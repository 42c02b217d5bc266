"""Tables past the JVM: tasks write files, the driver commits them, and Spark sees ranges of offsets only."""
