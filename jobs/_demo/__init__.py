"""The parts of ``jobs.demo``: flights → load → run → check, and the output."""
