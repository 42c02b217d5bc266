"""Delta tables: commits by delta-rs, and the transactions by which a table's log remembers a query."""
