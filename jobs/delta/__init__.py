"""Delta tables as source and sink of jobs."""
