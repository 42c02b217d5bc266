"""Metrics of the queries that a process runs: a Prometheus endpoint, and a file of events for pictures.

::

    commit, abort, lag (Python workers) ──socket──┐
    progress, starts, ends (Spark's listener) ────┼── Hub ──┬── Exporter (/metrics)
    restarts (spark_eos.run) ─────────────────────┘         ├── Recent   (/events)
                                                            └── Recorder (a file)

A query never fails because of any of this: what goes wrong is logged once.
"""

from spark_eos.ops.metrics.session import Metrics, start

__all__ = ["Metrics", "start"]
