"""The ground that every room stands on: log lines, retries, clocks, caches, failpoints, the seam to the system."""
