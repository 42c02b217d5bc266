"""Metrics of the queries of a process: a Prometheus endpoint, and a file of events for `spark-eos plot`.

::

    commit, abort, lag (Python workers) ──socket──┐
    progress, starts, ends (Spark's listener) ────┼── Hub ──┬── Exporter (/metrics)
    restarts (spark_eos.run) ─────────────────────┘         ├── Recent   (/events)
                                                            └── Recorder (a file)

No query fails because of its metrics: errors are logged, once.
"""

from spark_eos.ops.metrics.session import Metrics, start

__all__ = ["Metrics", "start"]
