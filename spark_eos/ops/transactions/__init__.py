"""``spark-eos transactions``: whose the open transactions are, and how to end them without a query."""
