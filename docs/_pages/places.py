"""When an error can be raised in a query: by the file that makes it, and by its name where a file is shared.

``start``: on the driver, before any task. ``task``: in a task. ``commit``: on the driver, after the tasks. ``tool``: in
no query.
"""

from __future__ import annotations

#: The longest beginning of a file's path that fits counts.
BY_PATH = {
    "jobs/": "tool",
    "spark_eos/tools/": "tool",
    "spark_eos/cli/": "tool",
    "spark_eos/ops/": "tool",
    "spark_eos/checkpoint.py": "start commit",
    "spark_eos/spark/damaged_checkpoint.py": "start",
    "spark_eos/direct/": "task",
    "spark_eos/direct/checks.py": "start",
    "spark_eos/direct/testing.py": "tool",
    "spark_eos/direct/transforming.py": "start task",
    "spark_eos/foreach.py": "start",
    "spark_eos/ingest/": "tool",
    "spark_eos/mirror/": "start",
    "spark_eos/mirror/groups.py": "tool",
    "spark_eos/mirror/landed.py": "task",
    "spark_eos/mirror/offset_map.py": "tool",
    "spark_eos/mirror/task.py": "task",
    "spark_eos/mirror/trimming.py": "tool",
    "spark_eos/options/": "start",
    "spark_eos/spark/reasons.py": "start",
    "spark_eos/source/": "start",
    "spark_eos/source/consumer.py": "task",
    "spark_eos/source/decode.py": "task",
    "spark_eos/source/diagnosis.py": "task",
    "spark_eos/source/fetch.py": "task",
    "spark_eos/source/raw.py": "task",
    "spark_eos/tables.py": "start",
    "spark_eos/sink/": "task",
    "spark_eos/sink/batch_writer.py": "task commit",
    "spark_eos/sink/ledger_topic.py": "start",
    "spark_eos/sink/predecessors.py": "start",
    "spark_eos/sink/preflight.py": "start",
    "spark_eos/sink/two_phase.py": "start",
    "spark_eos/sink/schema.py": "start",
    "spark_eos/protocol/": "task commit",
    "spark_eos/protocol/commands.py": "tool",
    "spark_eos/protocol/commit.py": "commit",
    "spark_eos/protocol/head_codec.py": "start task commit",
    "spark_eos/protocol/open.py": "task",
    "spark_eos/protocol/task.py": "task",
    "spark_eos/kafka/": "start task commit",
    "spark_eos/kafka/config/": "start",
    "spark_eos/kafka/producer/": "task",
    "spark_eos/ledger/": "task commit",
    "spark_eos/ledger/errors.py": "start task commit",
    "spark_eos/ledger/own_topics.py": "start task commit",
}
BY_NAME = {
    "EOS_CHECKPOINT_DAMAGED": "start commit",
    "EOS_CHECKPOINT_STORE": "start commit",
    "EOS_CHECKPOINT_UNREACHABLE": "start commit",
    "EOS_COORDINATOR_UNREACHABLE": "task commit",
    "EOS_DELIVERY_FAILED": "task",
    "EOS_DELIVERY_UNAUTHORIZED": "task",
    "EOS_EXECUTOR_WITHOUT_PACKAGE": "task",
    "EOS_FENCED": "task",
    "EOS_GROUP_OF_BOTH": "start",
    "EOS_GROUP_UNAUTHORIZED": "start",
    "EOS_KAFKA_REFUSED": "start task",
    "EOS_LEDGER_HEAD_MISSING": "start task commit",
    "EOS_LEDGER_NOT_READABLE": "start task commit",
    "EOS_LEDGER_HELD": "start task commit",
    "EOS_LEDGER_UNAUTHORIZED": "start task commit",
    "EOS_OPTION_CONFLICT": "start",
    "EOS_ROW_REFUSED": "task",
    "EOS_ROW_TOO_LARGE": "task",
    "EOS_SOURCE_DATA_LOSS": "start task",
    "EOS_TOPIC_MISSING": "start task",
    "EOS_TOPIC_UNAUTHORIZED": "start task",
    "EOS_TRANSACTION_LOST": "commit",
    "EOS_TRANSACTIONS_REFUSED": "task commit",
    "EOS_TWO_PHASE_EXPIRES": "start task",
    "EOS_TWO_PHASE_REFUSED": "start task",
    "EOS_TRANSACTION_TIMEOUT_TOO_LONG": "start task",
}


def places(condition: str, paths: list[str]) -> list[str]:
    """Where a condition that these files make is raised, in the order of a query's run. Raises LookupError."""
    if condition in BY_NAME:
        return BY_NAME[condition].split()
    found = {place for path in paths for place in BY_PATH[_prefix(path)].split()}
    return [place for place in ("start", "task", "commit", "tool") if place in found]


def _prefix(path: str) -> str:
    fitting = [prefix for prefix in BY_PATH if path.startswith(prefix)]
    if not fitting:
        raise LookupError(f"docs/_pages/places.py does not say when {path} runs")
    return max(fitting, key=len)
