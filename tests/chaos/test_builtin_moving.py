"""docs/moving.md: over from Spark's own `kafka` source and sink, with the checkpoint, and back. Every row once."""

from __future__ import annotations

import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_eos import cli
from spark_eos.tools.devcluster.jars import SPARK_KAFKA, resolve
from tests.support.judges.kafka_view import KafkaView, Row, write
from tests.support.judges.recorder import judged, of_topics
from tests.support.spark import moving_program as moving
from tests.support.spark.moving_program import ANSWER, Step
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.chaos  # the jars need a JVM of their own

ROWS, KEYS = 100, 10
OWN, EOS = "kafka", "eos-kafka"


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[[Step], str]]:
    """Runs a query until its input is drained: its error, or an empty text."""
    jars = ",".join(map(str, resolve(SPARK_KAFKA)))
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, moving.__file__, jars]
    answers: queue.Queue[str] = queue.Queue()
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:

        def listen() -> None:
            for line in process.stdout or ():
                if line.startswith(ANSWER):
                    answers.put(line.removeprefix(ANSWER).strip())

        threading.Thread(target=listen, daemon=True).start()

        def run(step: Step) -> str:
            assert process.stdin is not None
            process.stdin.write(step.to_json() + "\n")
            return answers.get(timeout=TIMEOUT)

        try:
            yield run
        finally:
            process.kill()


class Move:
    """Input, output and a checkpoint; each query reads what the one before has left."""

    def __init__(self, view: KafkaView, topic: Callable[..., str], folder: Path, run: Callable[[Step], str]) -> None:
        self._view, self._run, self._folder = view, run, folder
        self.input, self.output = topic(2), topic(2)
        self.expected: list[str] = []

    def __call__(
        self, source: str, sink: str, checkpoint: str = "checkpoint", start: str = "earliest", **options: str
    ) -> str:
        """Feed, and run from the formats ``source`` to ``sink``: the error, or nothing."""
        self._feed()
        servers = {"kafka.bootstrap.servers": self._view.bootstrap_servers}
        read = {"subscribe": self.input, "startingOffsets": start, "maxOffsetsPerTrigger": "70"}
        if source == OWN:
            read["kafka.isolation.level"] = "read_committed"
        wrote = {"topic": self.output, "checkpointLocation": str(self._folder / checkpoint)}
        if sink == EOS:
            wrote["kafka.partitioner"] = "murmur2_random"
        wrote |= {key.replace("__", "."): value for key, value in options.items()}
        return self._run(Step(source, sink, servers | read, servers | wrote))

    @property
    def folder(self) -> Path:
        return self._folder / "checkpoint"

    def command(self, *words: str) -> int:
        return cli.main(["--bootstrap-servers", self._view.bootstrap_servers, *words])

    def status(self) -> int:
        """Says what a start would do: exit code 2 where that is not known, as without a record in the ledger topic."""
        return self.command("status", str(self.folder), "--watch", "0")

    @property
    def begin(self) -> str:
        """Where the ledger is to begin: after the last micro-batch that is committed."""
        return str(self.newest("commits") + 1)

    def rows(self) -> list[Row]:
        return self._view.rows(self.output)

    def _feed(self) -> None:
        values = [(i % 2, f"{len(self.expected) + i:06d}") for i in range(ROWS)]
        write(self._view.bootstrap_servers, self.input, values, commit=True)
        self.expected += [value for _, value in values]

    def offsets(self) -> str:
        """Where the query ended: the newest file of the offset log, as the way back says to write it."""
        logs = {log: self.newest(log) for log in ("offsets", "commits")}
        assert logs["offsets"] == logs["commits"], "a micro-batch is under way"
        line = (self.folder / "offsets" / str(logs["offsets"])).read_text().splitlines()[2]
        return json.dumps({topic: offsets for topic, offsets in json.loads(line).items() if not topic.startswith("#")})

    def newest(self, log: str) -> int:
        names = (file.name for file in (self.folder / log).iterdir())
        return max(int(name) for name in names if re.fullmatch(r"\d+", name))

    def check(self) -> None:
        """Every row once, and each key in one partition, whoever wrote it."""
        rows = self._view.rows(self.output)
        assert sorted(row.value.decode() for row in rows) == self.expected
        assert len({(row.key, row.partition) for row in rows}) == len({row.key for row in rows}) == KEYS


@pytest.fixture
def move(view: KafkaView, topic: Callable[..., str], tmp_path: Path, run: Callable[[Step], str]) -> Iterator[Move]:
    """What readers of the output see during the test is judged at its end."""
    made = Move(view, topic, tmp_path, run)
    with judged(view, of_topics(view, made.output, made.input, str(made.folder), whole_parts=False)):  # rows have keys
        yield made


@pytest.fixture
def twice(view: KafkaView, topic: Callable[..., str], tmp_path: Path, run: Callable[[Step], str]) -> Move:
    """The same for a test that writes rows twice on purpose, which no judge would take."""
    return Move(view, topic, tmp_path, run)


def test_source_and_sink_move_over_where_status_says_and_back(move, capsys):
    """The checkpoint is taken over as it is: the logs of the built-in source and sink are read, and a micro-batch under
    way is told. Back goes a new one, as the built-in source cannot read topic ids."""
    assert move(OWN, OWN) == ""
    move.check()
    last = move.newest("commits")
    log = move.folder / "commits"
    kept = {name: (log / name).read_bytes() for name in (f"{last}", f".{last}.crc")}
    for name in kept:
        (log / name).unlink()
    assert move.status() == 2
    told = capsys.readouterr().out
    assert f"its checkpoint is at micro-batch {last}." in told
    assert "if another sink wrote until now and has not finished that micro-batch" in told
    for name, data in kept.items():
        (log / name).write_bytes(data)
    assert move.status() == 2
    assert f"set the option 'ledger.begin' to {move.begin}" in capsys.readouterr().out
    assert "EOS_LEDGER_HEAD_MISSING" in move(EOS, EOS)
    assert move(EOS, EOS, ledger__begin=move.begin) == ""
    move.check()
    assert move(EOS, EOS) == ""
    move.check()
    assert move(OWN, OWN, checkpoint="back", start=move.offsets()) == ""
    move.check()


def test_a_query_with_the_built_in_source_is_replayed(twice):
    """Its offset log has no topic ids; the new checkpoint is one that the built-in source reads."""
    assert twice(OWN, OWN) == ""
    assert twice(OWN, EOS, ledger__begin=twice.begin) == ""
    assert (
        twice.command("replay", str(twice.folder), "--new", f"{twice.folder}-2", "--to-batch", "0", "--again", "--yes")
        == 0
    )
    once = list(twice.expected)
    assert twice(OWN, EOS, checkpoint="checkpoint-2") == ""
    rows = sorted(row.value.decode() for row in twice.rows())
    first = json.loads((twice.folder / "offsets" / "0").read_text().splitlines()[2])[twice.input]
    assert sum(first.values()) > 0  # micro-batch 0 of the built-in source has rows
    assert set(rows) == set(twice.expected)
    doubled = {value for value in rows if rows.count(value) == 2}
    assert doubled <= set(once)
    assert len(doubled) == len(once) - sum(first.values())
    assert "EOS_QUERY_RETIRED" in twice(OWN, EOS)


def test_the_sink_moves_over_and_back(move):
    """The built-in source stays: both ways with one checkpoint."""
    assert move(OWN, OWN) == ""
    assert move(OWN, EOS, ledger__begin=move.begin) == ""
    assert move(OWN, EOS) == ""
    move.check()
    assert move(OWN, OWN) == ""
    assert move(OWN, EOS) == ""
    move.check()
