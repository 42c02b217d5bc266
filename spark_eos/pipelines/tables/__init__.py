"""Copies to tables past the JVM: tasks write data files, the driver commits them; Spark's rows are offset ranges."""
