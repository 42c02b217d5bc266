"""A query that is shown, replayed and taken over by commands, and what a plain consumer sees of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_eos import cli
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView, write
from tests.support.queries.sink_queries import Sink, kafka_frame
from tests.support.waiting import PROGRAM_S

ROWS = 3


@dataclass
class Life:
    """A query with a committed micro-batch for each feed. ``began``: the time before each of them, in milliseconds;
    ``limit``: maxOffsetsPerTrigger."""

    spark: SparkSession
    cluster: DevCluster
    view: KafkaView
    sink: Sink
    source: str
    out: str
    group: str
    capsys: pytest.CaptureFixture[str]
    began: list[int] = field(default_factory=list)
    limit: int | None = None

    @property
    def checkpoint(self) -> Path:
        return self.sink.checkpoint

    @property
    def new(self) -> Path:
        return self.checkpoint.with_name("again")

    @property
    def end(self) -> int:
        return self.view.ends(self.source)[self.source, 0]

    def feed(self) -> None:
        """Rows, and a micro-batch that copies them."""
        n = len(self.began)
        self.began.append(int(time.time() * 1000))
        write(self.cluster.bootstrap_servers, self.source, [(0, f"{n}.{i}") for i in range(ROWS)], commit=True)

    def run(self, checkpoint: Path | None = None, **options: str) -> None:
        self.at(checkpoint, **options).run(self.frame())

    def frame(self) -> DataFrame:
        return kafka_frame(self.spark, self.cluster, self.source, self.limit)

    def at(self, checkpoint: Path | None = None, **options: str) -> Sink:
        """The query with another checkpoint, or other options."""
        other = Sink(self.cluster, self.checkpoint.parent)
        other.options = self.sink.options | options
        other.checkpoint = checkpoint or self.checkpoint
        return other

    def stopped_by(self, condition: str, checkpoint: Path | None = None, **options: str) -> str:
        return self.at(checkpoint, **options).stopped_by(self.frame(), condition)

    def command(self, *words: str) -> int:
        return cli.main(["--bootstrap-servers", self.cluster.bootstrap_servers, *words])

    def told(self, *words: str) -> Any:
        """What a command prints as JSON."""
        self.capsys.readouterr()
        self.command(*words, "--format", "json")
        return json.loads(self.capsys.readouterr().out)

    def status(self, where: object = None, *more: str) -> Any:
        """The state of the query at this checkpoint, or its own, as JSON."""
        (state,) = self.told("status", str(where or self.checkpoint), "--watch", "0", *more)
        return state

    def replay(self, *words: str) -> int:
        return self.command("replay", str(self.checkpoint), "--new", str(self.new), *words)

    def refused(self, condition: str, *words: str) -> str:
        """A command that changes nothing, and says why."""
        self.capsys.readouterr()
        assert self.command(*words) == 2
        text = self.capsys.readouterr().err
        assert condition in text
        return text

    def counts(self, topic: str | None = None) -> Counter[str]:
        return Counter(self.view.values(topic or self.out))

    def expected(self, *times: int) -> Counter[str]:
        """Each feed's rows so many times."""
        return Counter({f"{n}.{i}": often for n, often in enumerate(times) for i in range(ROWS) if often})


def killed(servers: str, fault: str, folder: Path, *words: str) -> None:
    """The command as a program of its own, which dies at this point. ``folder``: a new one."""
    folder.mkdir()
    command = [sys.executable, "-m", "spark_eos.cli", "--bootstrap-servers", servers, *words]
    environment = os.environ | {"SPARK_EOS_FAULTS": fault, "SPARK_EOS_FAULTS_DIR": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
