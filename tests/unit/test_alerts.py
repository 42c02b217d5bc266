"""Dashboard and alerts use what the endpoint has, and lead where they say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from spark_eos.datasource import restarts
from spark_eos.ops.metrics.exporter import Exporter
from tests.support.runs.page_programs import files_of
from tests.unit.test_docs import anchors

ROOT = Path(__file__).parents[2]
PANELS = json.loads((ROOT / "conf" / "grafana.json").read_text())["panels"]
#: A page's example of a Prometheus that reads the alerts, and one more of its own.
PRODUCTION = files_of("production.md")
FILES = {
    "alerts.yaml": (ROOT / "conf" / "alerts.yaml").read_text(),
    "orders-alerts.yaml": PRODUCTION["orders-alerts.yaml"],
    "prometheus.yml": PRODUCTION["prometheus.yml"],
}
RULES = [
    rule
    for name in ("alerts.yaml", "orders-alerts.yaml")
    for group in yaml.safe_load(FILES[name])["groups"]
    for rule in group["rules"]
]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel.get("targets", ())] + [r["expr"] for r in RULES]


def series() -> set[str]:
    """The full names of all series, without those that tell when a counter began."""
    registry = CollectorRegistry()
    Exporter(registry)
    suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
    return {family.name + end for family in registry.collect() for end in suffixes.get(family.type, [""])}


def test_expressions_use_metrics_that_are_there():
    """No name is misspelt, and nothing was renamed on one side only."""
    assert {name for text in EXPRESSIONS for name in re.findall(r"\bspark_eos_\w+", text)} <= series()


def test_every_metric_is_explained():
    """docs/metrics.md names each, without its prefix, and none that is not there."""
    told = set(re.findall(r"^\| (`.+?`) \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    names = {name for cell in told for name in re.findall(r"`(\w+)`", cell)}
    of_series = {re.sub("_(bucket|count|sum)$", "", name) for name in series()}
    assert names == {name.removeprefix("spark_eos_") for name in of_series}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do(rule):
    """It has a severity, a sentence, and a place in the docs that exists."""
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"].endswith(".")
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert not anchor or anchor in anchors(ROOT / page)
    assert (ROOT / page).exists()


def test_a_restart_that_is_due_raises_no_alert():
    """Until then the query does not run, and its error is counted."""
    (failed,) = (rule for rule in RULES if rule["alert"] == "SparkEosQueryFailed")
    minutes = re.fullmatch(r"(\d+)m", failed["for"])
    assert minutes is not None and 60 * int(minutes[1]) > restarts._LONGEST_PAUSE_S


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, which comes with Prometheus, is not installed")
def test_prometheus_raises_them_when_it_should():
    """A series that begins with its first event, a query that was started again in time, events of long ago."""
    promtool("test", "rules", str(Path(__file__).with_name("alerts.promtool.yaml")))


DOWN = """\
rule_files: [orders-alerts.yaml]
tests:
  - interval: 1m
    input_series:
      - {series: 'up{job="orders", instance="HOST:9400"}', values: 1x4 0x20}
    promql_expr_test:
      - {expr: 'count(ALERTS{alertstate="firing"})', eval_time: 9m}
      - {expr: 'count(ALERTS{alertstate="firing"})', eval_time: 11m, exp_samples: [{value: 1}]}
"""


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, which comes with Prometheus, is not installed")
def test_prometheus_takes_the_example_of_the_tutorial(tmp_path: Path):
    """Its configuration names the alerts, and a job that ends raises one."""
    for name, text in (FILES | {"down.yaml": DOWN}).items():
        (tmp_path / name).write_text(text)
    assert "2 rule files found" in promtool("check", "config", str(tmp_path / "prometheus.yml"))
    promtool("test", "rules", str(tmp_path / "down.yaml"))


def promtool(*arguments: str) -> str:
    """Run it; what it says."""
    done = subprocess.run(["promtool", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_example_of_the_tutorial_scrapes_the_job():
    """At the port that the job's file has, by the name that the alert asks for."""
    (scrape,) = yaml.safe_load(FILES["prometheus.yml"])["scrape_configs"]
    port = yaml.safe_load(PRODUCTION["orders.yaml"])["metrics"]["port"]
    assert scrape["static_configs"] == [{"targets": [f"HOST:{port}"]}]
    (rule,) = yaml.safe_load(FILES["orders-alerts.yaml"])["groups"][0]["rules"]
    assert f'up{{job="{scrape["job_name"]}"}}' in rule["expr"]
