"""Sampled stacks, from what the samplers write to what is drawn."""

import pytest

from bench.flames import _boxes, from_jfr, from_py_spy

PY_SPY = """\
process 7:"python -m pyspark.daemon";<module> (/lib/pyspark/daemon.py:290);main.<locals>.process (worker.py:3612);run_task (/home/x/spark_eos/sink/task.py:98);crc32c (_crc32c.so) 3
process 8:"python -m pyspark.daemon";main.<locals>.process (worker.py:3612);run_task (spark_eos/sink/task.py:99);0x7f00;crc32c (_crc32c.so) 2
process 7:"python";worker (daemon.py:90);read_int (serializers.py:597);read (libc.so.6) 9
process 7:"python";Thread.run (threading.py:982);select_epoll_poll (selectmodule.c:1598);epoll_wait (libc.so.6) 9
process 7:"python";main.<locals>.process (worker.py:3612);load (ipc.py:5);read (libc.so.6) 1
"""  # noqa: E501

JFR = """\
jdk.ExecutionSample {
  startTime = 19:22:01.001
  sampledThread = "Executor task launch worker for task 0.0 in stage 3.0 (TID 12)" (javaThreadId = 61)
  state = "STATE_RUNNABLE"
  stackTrace = [
    org.apache.spark.sql.execution.arrow.ArrowWriter.write(InternalRow) line: 89
    org.apache.spark.scheduler.Task.run() line: 147
    ...
  ]
}

jdk.ExecutionSample {
  startTime = 19:22:01.021
  sampledThread = "dag-scheduler-event-loop" (javaThreadId = 40)
  state = "STATE_RUNNABLE"
  stackTrace = [
    java.lang.Thread.run() line: 840
  ]
}
"""


def test_python_stacks_begin_with_the_work_and_leave_waiting_out():
    """Lines of the source do not matter, nor do processes."""
    work = "main.<locals>.process (worker.py)"
    assert from_py_spy([PY_SPY, PY_SPY]) == {
        (work, "run_task (spark_eos/sink/task.py)", "crc32c (_crc32c.so)"): 10,
        (work, "load (ipc.py)", "read (libc.so.6)"): 2,
    }


def test_java_stacks_stand_on_their_thread():
    """Outermost first, packages short."""
    writes = ("o.a.s.scheduler.Task.run", "o.a.s.sql.execution.arrow.ArrowWriter.write")
    assert from_jfr(JFR) == {("Executor task launch worker for task", *writes): 1, ("dag", "j.l.Thread.run"): 1}


def test_a_frame_is_as_wide_as_all_that_it_called():
    """Callers in common are one box, the widest to the left."""
    boxes = _boxes({("a", "b"): 1, ("a", "c"): 2, ("a",): 1, ("d",): 4}, 8)
    assert sorted(boxes) == [
        (0.0, 0, 0.5, "a"), (0.0, 1, 0.25, "c"), (0.25, 1, 0.125, "b"), (0.5, 0, 0.5, "d"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "\n"])
def test_nothing_was_sampled(text):
    """A query that waited all the time."""
    assert not from_py_spy([text]) and not from_jfr(text)
