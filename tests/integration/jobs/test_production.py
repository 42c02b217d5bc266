"""The topics and the job of docs/production.md on a real broker, as they stand but for names and ports."""

from __future__ import annotations

import re
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

from spark_eos.tools.devcluster import DevCluster
from spark_eos.tools.devcluster.ports import free_ports
from tests.support.judges.kafka_view import KafkaView, write
from tests.support.kills.job_program import running
from tests.support.runs.installed_wheel import install
from tests.support.runs.page_programs import files_of, run_program
from tests.support.waiting import PROGRAM_S, wait_for

LARGE = ['{"amount": 150}', '{"amount": "100.00"}']
OTHERS = ['{"amount": 99.99}', '{"item": 1}']
MALFORMED = ["no", '{"amount": "x"}']


def test_the_job_of_the_tutorial(
    wheel: Path, cluster: DevCluster, topic: Callable[..., str], view: KafkaView, tmp_path: Path
):
    """It runs from the wheel, with the extras of the page alone, and is quiet. Large orders pass, others do not, and
    what is no order is a dead letter, which the metrics count. SIGTERM, as systemd and containers send it, ends the job
    by exit code 0."""
    bare = install(wheel, tmp_path / "environment", "jobs", "sql", "metrics")
    name = topic()  # a free name, of which those of the page are made
    orders, target, letters = (f"{name}-{part}" for part in ("orders", "large-orders", "orders-dead"))
    renamed = {'"orders"': f'"{orders}"', '"large-orders"': f'"{target}"', '"orders-dead"': f'"{letters}"'}
    run_program("production.md", "NewTopic(", {"localhost:9092": cluster.bootstrap_servers, **renamed})
    write(view.bootstrap_servers, orders, [(n % 4, value) for n, value in enumerate(LARGE + OTHERS + MALFORMED)])
    (port,) = free_ports(1)
    text = files_of("production.md")["orders.yaml"]
    places = {
        "subscribe: orders": f"subscribe: {orders}",
        "topic: large-orders\n": f"topic: {target}\n",
        "deadLetters.topic: orders-dead": f"deadLetters.topic: {letters}",
        "port: 9400": f"port: {port}",
    }
    for part, other in places.items():
        assert text.count(part) == 1, part
        text = text.replace(part, other)
    (tmp_path / "orders.yaml").write_text(text)
    environ = bare.environ(KAFKA=cluster.bootstrap_servers, CHECKPOINT=str(tmp_path / "checkpoint"))
    command = ["spark-eos", "run", "consume_transform_produce", "--conf", "orders.yaml"]
    log = tmp_path / "log"
    with running(command, log, cwd=tmp_path, env=environ) as job:

        def letters_there() -> bool:
            assert job.poll() is None, log.read_text()[-6000:]
            return len(view.rows(letters)) == len(MALFORMED)

        wait_for(letters_there, "the dead letters", PROGRAM_S)
        wait_for(lambda: view.held(target, letters) == {}, "the markers")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            metrics = answer.read().decode()
        job.send_signal(signal.SIGTERM)
        assert job.wait(PROGRAM_S) == 0, log.read_text()[-6000:]
    assert not re.search("WARN|ERROR|Traceback", log.read_text())
    assert sorted(view.values(target)) == sorted(LARGE)
    assert sorted(view.values(letters)) == sorted(MALFORMED)
    counted = [line for line in metrics.splitlines() if line.startswith("spark_eos_dead_letters_total{")]
    assert [float(line.rpartition(" ")[2]) for line in counted] == [float(len(MALFORMED))]
