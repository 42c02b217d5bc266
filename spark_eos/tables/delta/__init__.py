"""Delta tables: what their logs remember of a query, and commits by delta-rs."""
