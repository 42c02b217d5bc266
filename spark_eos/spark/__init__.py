"""What knows PySpark's inside: its versions, workers, stack traces, and the texts of its errors."""
