"""Code that relies on PySpark's internals: Spark's versions, workers, stacks and errors."""
