"""What knows PySpark's inside: the data source that Spark calls, and Spark's versions, workers, stacks and errors."""
