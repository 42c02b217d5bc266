"""``spark-eos verify``: whether each row of the input topics is in the output topics exactly once, for plain consumers.

::

    question ─> bounds ─> intake: reader ─> spill ─> judge ─> report
                             └─> sample, where no row has an id
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from spark_eos.errors import stop
from spark_eos.kafka.config.librdkafka import check
from spark_eos.tools.verify.bounds import take_bounds
from spark_eos.tools.verify.intake import Intake
from spark_eos.tools.verify.judge import Findings, judge_history
from spark_eos.tools.verify.question import Question, Where
from spark_eos.tools.verify.report import Example, Report, as_json, as_text, make_report

__all__ = ["Example", "Question", "Report", "Where", "as_json", "as_text", "verify"]


def verify(question: Question, progress: Callable[[str], None] = lambda text: None) -> Report:
    """Read everything and judge it. ``progress`` is called from time to time with a line for the user. Raises EosError.

    Needs about 100 bytes of disk for each row; raises EosError (EOS_VERIFY_IMPOSSIBLE) if there is not enough space.
    """
    check(question.kafka, "consumer")
    bounds = take_bounds(question)
    findings = Findings(question.limit)
    try:
        with tempfile.TemporaryDirectory(prefix="spark-eos-verify-") as folder:
            intake = Intake(question, bounds, Path(folder), findings, progress)
            history = intake.history()
            progress("judging")
            judge_history(history, findings, Path(folder), question.order)
    except OSError as error:
        raise stop("EOS_VERIFY_IMPOSSIBLE.room", gettempdir=tempfile.gettempdir(), error=error) from None
    return make_report(question, bounds, findings, intake.counts, intake.warnings)
