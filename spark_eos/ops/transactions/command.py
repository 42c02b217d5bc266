"""What each action of ``spark-eos transactions`` prints, and its exit code: 0 when nothing is open, or is left to be
done; 1 when something is; 2, by the caller, when that cannot be told, or nothing may be ended."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.ports.owners import Cluster, find, parts
from spark_eos.ops.transactions import ending, report


def run(arguments: argparse.Namespace, kafka: KafkaProperties) -> int:
    """Raises EosError."""
    cluster = Cluster(kafka, arguments.ledger_topic, arguments.prefix)
    action = {"list": _list, "describe": _describe, "abort": _abort, "settle": _settle}[arguments.action]
    return action(cluster, arguments)


def _list(cluster: Cluster, arguments: argparse.Namespace) -> int:
    found = [t for t in find(cluster, arguments.query) if t.open_s >= arguments.open_for]
    _print(arguments, [report.as_json(t) for t in found], report.as_text(found))
    return 1 if found else 0


def _describe(cluster: Cluster, arguments: argparse.Namespace) -> int:
    wanted: Sequence[str] = arguments.id
    found = [t for t in find(cluster, arguments.query) if not wanted or t.id in wanted]
    details = {t: parts(cluster, t) for t in found}
    _print(arguments, [report.as_json(t, of) for t, of in details.items()], report.details_as_text(details))
    return 1 if found else 0


def _abort(cluster: Cluster, arguments: argparse.Namespace) -> int:
    if not arguments.yes:
        plans = [ending.plan_abort(cluster, query) for query in arguments.query]
        return _tell_plans(arguments, plans, "abort")
    return _tell_results(arguments, [ending.abort(cluster, query) for query in arguments.query], "aborted")


def _settle(cluster: Cluster, arguments: argparse.Namespace) -> int:
    if not arguments.yes:
        plans = [ending.plan_settle(cluster, query) for query in arguments.query]
        return _tell_plans(arguments, plans, "commit")
    return _tell_results(arguments, [ending.settle(cluster, query) for query in arguments.query], "committed")


def _tell_plans(arguments: argparse.Namespace, plans: Sequence[ending.Plan], verb: str) -> int:
    texts = [report.plan_as_text(plan, verb) for plan in plans]
    _print(arguments, [report.plan_as_json(plan) for plan in plans], "\n".join(texts))
    return 1 if any(plan.ends for plan in plans) else 0


def _tell_results(arguments: argparse.Namespace, results: Sequence[ending.Result], verb: str) -> int:
    texts = [report.result_as_text(result, verb) for result in results]
    _print(arguments, [report.result_as_json(result) for result in results], "\n".join(texts))
    return 0 if all(result.ok for result in results) else 1


def _print(arguments: argparse.Namespace, data: object, text: str) -> None:
    print(json.dumps(data, indent=2) if arguments.format == "json" else text)
