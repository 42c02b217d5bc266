"""What a job prints when its query fails."""

from __future__ import annotations

from jobs.query import failure_text
from spark_eos.errors import Superseded

OURS = "[EOS_SUPERSEDED] Another run has taken over. Hint: Stop this one."
IN_SPARK = f"""[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Error in Python: Traceback (…):
  File "pyspark/worker.py", line 1, in main
    writer.commit(messages, batch)
spark_eos.errors.Superseded: {OURS}
 SQLSTATE: XXKST
=== Streaming Query ===
Filter (raise_error("[EOS_JOB_MALFORMED_ROW] The value of topic ", topic#1))
\tat org.apache.spark.sql.X.y(X.scala:1)"""


def test_an_error_of_ours_is_printed_as_it_is():
    assert failure_text(Superseded("EOS_SUPERSEDED", "Another run has taken over.", hint="Stop this one.")) == OURS


def test_an_error_of_ours_inside_sparks_is_all_that_is_printed():
    assert failure_text(Exception(IN_SPARK)) == OURS


def test_verbose_prints_ours_first_and_all_of_sparks():
    text = failure_text(Exception(IN_SPARK), verbose=True)
    assert text.startswith(OURS) and text.endswith(IN_SPARK)


def test_an_error_in_the_users_python_is_named_by_the_last_line_of_its_traceback():
    """And not by a text of ours that stands in the query's plan."""
    text = failure_text(
        Exception(IN_SPARK.replace(f"spark_eos.errors.Superseded: {OURS}", "ValueError: no such plane"))
    )
    assert text == "ValueError: no such plane (--verbose shows all)"


def test_other_errors_are_named_by_sparks_first_line():
    assert failure_text(Exception("\n[TABLE_NOT_FOUND] x\n\tat y")) == "[TABLE_NOT_FOUND] x (--verbose shows all)"
