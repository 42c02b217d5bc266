"""``spark-eos verify``: compares topics, or topics and a table, row by row, as a plain consumer or a reader of tables
sees them.

::

    comparison ─> bounds ─> scan: reader, tables ─> spill ─> judge ─> report
                             └─> sample, where no row has an id
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from spark_eos.errors import stop
from spark_eos.kafka.config.librdkafka import check, check_token
from spark_eos.tools.verify.bounds import take_bounds
from spark_eos.tools.verify.comparison import Comparison, IdPlace, side
from spark_eos.tools.verify.judge import Findings, judge_history
from spark_eos.tools.verify.report import Example, Report, as_json, as_text, make_report
from spark_eos.tools.verify.scan import Scan
from spark_eos.tools.verify.tables import TableAddress

__all__ = ["Comparison", "Example", "IdPlace", "Report", "TableAddress", "as_json", "as_text", "side", "verify"]


def verify(comparison: Comparison, progress: Callable[[str], None] = lambda text: None) -> Report:
    """Read everything and judge it. ``progress`` is called from time to time with a line for the user. Raises EosError.

    Needs about 100 bytes of disk for each row; raises EosError (EOS_VERIFY_IMPOSSIBLE) if there is not enough space.
    """
    check(comparison.kafka, "consumer")
    check_token(comparison.kafka)
    bounds = take_bounds(comparison)
    findings = Findings(comparison.limit)
    try:
        with tempfile.TemporaryDirectory(prefix="spark-eos-verify-") as folder:
            scan = Scan(comparison, bounds, Path(folder), findings, progress)
            history = scan.history()
            progress("judging")
            judge_history(history, findings, Path(folder), comparison.order)
    except OSError as error:
        raise stop("EOS_VERIFY_IMPOSSIBLE.room", gettempdir=tempfile.gettempdir(), error=error) from None
    return make_report(comparison, bounds, findings, scan.counts, scan.warnings)
