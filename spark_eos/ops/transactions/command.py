"""What each action of ``spark-eos transactions`` answers, and its exit code: 0 when nothing is open, or what was asked
is done, or can be with ``--yes``; 1 when something is open, or left to be done; 2, by the caller, when that cannot be
told, or nothing may be ended."""

from __future__ import annotations

from collections.abc import Sequence

from spark_eos.ledger.owners import Cluster, Transaction, check_listed, find, parts
from spark_eos.ops.answer import Answer
from spark_eos.ops.transactions import ending, report


def list_open(cluster: Cluster, queries: Sequence[str], open_for_s: float) -> Answer:
    """Every open transaction of the queries, or of all. Raises EosError."""
    found = [t for t in _found(cluster, queries) if t.open_s >= open_for_s]
    return Answer([report.as_json(t) for t in found], report.as_text(found), 1 if found else 0)


def describe(cluster: Cluster, queries: Sequence[str], ids: Sequence[str]) -> Answer:
    """The same with producers and partitions; with ``ids``, only of these. Raises EosError."""
    found = [t for t in _found(cluster, queries) if not ids or t.id in ids]
    details = {t: parts(cluster, t) for t in found}
    data = [report.as_json(t, of) for t, of in details.items()]
    return Answer(data, report.details_as_text(details), 1 if found else 0)


def abort(cluster: Cluster, queries: Sequence[str], *, yes: bool) -> Answer:
    """Close each query and abort what it has open and not decided; without ``yes``, only say so. Raises EosError."""
    if not yes:
        return _plans([ending.plan_abort(cluster, query) for query in queries], "abort")
    return _results([ending.abort(cluster, query) for query in queries], "aborted")


def settle(cluster: Cluster, queries: Sequence[str], *, yes: bool, abort_broken: bool = False) -> Answer:
    """Commit what each query has decided; with ``abort_broken``, abort what of it has lost rows. Without ``yes``, only
    say so. Raises EosError."""
    if not yes:
        verb = "commit, or abort if broken," if abort_broken else "commit"
        return _plans([ending.plan_settle(cluster, query) for query in queries], verb)
    return _results([ending.settle(cluster, query, and_abort_broken=abort_broken) for query in queries], "committed")


def _found(cluster: Cluster, queries: Sequence[str]) -> list[Transaction]:
    """Those that are open; an error where there are none only because this user is not told."""
    found = find(cluster, queries)
    if not found:
        check_listed(cluster, queries)
    return found


def _plans(plans: Sequence[ending.EndPlan], verb: str) -> Answer:
    text = "\n".join(report.plan_as_text(plan, verb) for plan in plans)
    return Answer([report.plan_as_json(plan) for plan in plans], text)


def _results(results: Sequence[ending.Result], verb: str) -> Answer:
    text = "\n".join(report.result_as_text(result, verb) for result in results)
    code = 0 if all(result.ok for result in results) else 1
    return Answer([report.result_as_json(result) for result in results], text, code)
