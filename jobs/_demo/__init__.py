"""The rooms of ``jobs.demo``: flights → load → run → check, and what is shown of it."""
