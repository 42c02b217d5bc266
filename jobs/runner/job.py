"""Frame of every job's own work: command line, config file, session, signals, lines, restarts, exit codes.

A job is a model of its config file, and a function that makes a `Plan` of it. ``conf/`` has an example of its file,
``jobs/__init__.py`` its name for ``spark-eos run``.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings, of_spark
from spark_eos.checkpoint.stores import local_store
from spark_eos.errors import ConfigError, EosError, OptionError
from spark_eos.ops.metrics import Metrics
from spark_eos.ops.metrics.session import check as check_metrics
from spark_eos.ops.metrics.session import start as start_metrics
from spark_eos.protocol.checks import ROWS_MISSING
from spark_eos.spark.system_errors import system_error

from ..installed import check_installed
from . import query, session
from .checks import Check, JobCluster
from .config import in_file, load
from .jvm_stderr import JvmStderr
from .lines import BatchLines, say
from .local_checkpoint import LocalCheckpoint, check_writable
from .models import Job, MetricsSection, QueryJob
from .query import DONE, Stop, failed

_LAST_EVENT_S = 10.0
_EXIT_CODES = """\
exit codes:
  0   done, or stopped by SIGTERM or Ctrl-C
  1   failed: restarting will not help until the cause is fixed
  75  failed: restart the job unchanged, and it resumes where it stopped
"""
J = TypeVar("J", bound=Job)


@dataclass(frozen=True)
class JobContext:
    """Arguments of a job's work: the session, the request to stop, and the job's lines on stderr."""

    spark: SparkSession
    stop: Stop
    lines: BatchLines


@dataclass(frozen=True)
class Plan:
    """Plan of a job, as far as it is known without Spark.

    ``line``: the job's first line. ``clusters`` must answer before Spark starts, and ``checks`` must pass then.
    ``spark``: settings of the session. ``work`` runs until it is done or is asked to stop, and raises the error that
    ends it. ``beginning``: where it begins, logged when Spark is up. ``metrics``: the section of the file, if there is
    one. ``checkpoint``: its query's, if it has one.
    """

    line: str
    clusters: Sequence[JobCluster]
    spark: Mapping[str, str]
    work: Callable[[JobContext], None]
    beginning: str = ""
    metrics: MetricsSection | None = None
    checkpoint: str | None = None
    checks: Sequence[Check] = ()


def query_plan(
    config: QueryJob,
    what: str,
    clusters: Sequence[JobCluster],
    start: Callable[[SparkSession], StreamingQuery],
    first: str,
    *,
    spark: Mapping[str, str] | None = None,
    named: Callable[[BaseException], EosError | None] = lambda error: None,
    checks: Sequence[Check] = (),
) -> Plan:
    """Return the plan of a job that is one streaming query.

    ``what``: describes input and output; ``first``: where a new query begins. ``start`` builds and starts the query
    from scratch, and is called again where a restart helps. ``spark``: settings that replace the file's. ``named``:
    translates another library's error to one of spark-eos, or returns None. ``checks``: see `Plan`.
    """

    def work(context: JobContext) -> None:
        started: list[StreamingQuery] = []

        def factory() -> StreamingQuery:
            started.append(start(context.spark))
            return started[-1]

        try:
            spark_eos.run(
                factory,
                attempts=config.restart.attempts,
                pause_s=config.restart.pause_s,
                stop=context.stop.asked,
                on_restart=query.say_restart,
                explain=lambda error: spark_eos.reason(named(error) or error),
            )
        except (PySparkException, Py4JError) as error:
            raise named(error) or error from error
        if started:  # else the job was stopped before a query could be started
            context.lines.wait(started[-1].runId, _LAST_EVENT_S)

    begins = {True: f"a new query, from {first}", False: "the query goes on", None: ""}[is_new(config)]
    line = f"{what}; checkpoint {config.checkpoint}; {config.when}"
    settings = config.spark if spark is None else spark
    return Plan(line, clusters, settings, work, begins, config.metrics, config.checkpoint, checks)


def is_new(config: QueryJob) -> bool | None:
    """Return whether the job's query has never been started; None if only Spark can tell, as the checkpoint is not on a
    local disk."""
    settings = HadoopSettings(of_spark(config.spark))
    store = local_store(config.checkpoint, settings)
    if store is None:
        return None
    return not Path(store.root).is_dir() or Checkpoint(config.checkpoint, settings).query_id() is None


@dataclass(frozen=True)
class JobCommand(Generic[J]):
    """A job as its command line sees it. ``name``: of its module; ``about``: the module's docstring; ``config``: the
    model of its file; ``options`` adds options to the command line; ``plan`` is given the arguments."""

    name: str
    about: str | None
    config: type[J]
    plan: Callable[[J, argparse.Namespace], Plan]
    options: Callable[[argparse.ArgumentParser], None] = lambda parser: None

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the job by its command line. Returns the exit code."""
        args = self._parser().parse_args(arguments)
        return query.interruptible(lambda stop: self._run(args, stop))

    def _run(self, args: argparse.Namespace, stop: Stop) -> int:
        try:
            config = load(args.conf, self.config)
            check_installed(self.name, config.extras())
            plan = self.plan(config, args)
            if args.check:
                check(plan, alone=True)
                return DONE
            carry_out(plan, stop, name=self.name.replace("_", "-"), verbose=args.verbose)
        except (ConfigError, OptionError) as error:
            return failed(in_file(error, args.conf), verbose=args.verbose)
        except (EosError, PySparkException, Py4JError, OSError) as error:
            if stop.failed or not stop.asked() or getattr(error, "condition", None) == ROWS_MISSING:
                return self._failed(error, verbose=args.verbose)
        if stop.asked():
            say(f"stopped by {stop.signal}: restart it, and it resumes where it stopped")
        return DONE

    def _failed(self, error: Exception, *, verbose: bool) -> int:
        if not isinstance(error, OSError) or query.jvm_has_ended(error):
            return failed(error, verbose=verbose)
        if verbose:
            traceback.print_exception(error)
        return failed(system_error(error))

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=self.name,
            description=(self.about or "").partition("\n")[0],
            epilog=_EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--conf", required=True, metavar="FILE", help="the job's YAML file")
        self.options(parser)
        parser.add_argument(
            "--check", action="store_true", help="check all that can be checked without Spark, report it, and end"
        )
        parser.add_argument("--verbose", action="store_true", help="show Spark's log, and errors in full")
        return parser


def check(plan: Plan, *, alone: bool = False) -> None:
    """Check all requirements of a start that can be checked without Spark. Writes nothing. Raises EosError.

    ``alone``: nothing is started afterwards, so each check logs a line. Otherwise, problems that a restart may solve
    are left to the query, which is restarted for them.
    """
    say(plan.line)
    for each in _of_every_job(plan):
        each.look()
        if alone:
            say(f"checked: {each.what}")
    for each in plan.checks:
        try:
            each.look()
        except EosError as error:
            if alone or not error.restart_helps:
                raise
        if alone:
            say(f"checked: {each.what}")
    if alone:
        say("nothing stands in the way, as far as that is known without Spark; nothing was started or written")


def _of_every_job(plan: Plan) -> Iterator[Check]:
    yield Check("Java", session.check_java)
    if plan.metrics is not None:
        port = plan.metrics.port
        yield Check("the packages and the port of the metrics", lambda: check_metrics(port))
    if plan.checkpoint is not None:
        store = local_store(plan.checkpoint, HadoopSettings(of_spark(plan.spark)))
        where = ": it is on a store, which Spark will look at" if store is None else ""
        yield Check(f"the checkpoint {plan.checkpoint}{where}", lambda: check_writable(store))
    for cluster in plan.clusters:
        yield Check(str(cluster), cluster.expect)


def carry_out(plan: Plan, stop: Stop, *, name: str, verbose: bool = False) -> None:
    """Start a session and do the plan's work, until it has ended by itself or by ``stop``. Raises the error that it
    failed with.

    ``name``: the Spark application's.
    """
    check(plan)
    with ExitStack() as stack:
        stderr = None if verbose else stack.enter_context(JvmStderr(stop.asked)).fd
        local_checkpoint = stack.enter_context(LocalCheckpoint())  # until Spark has stopped
        spark = _session(plan, name, verbose, stderr)
        stack.callback(spark.stop)
        if plan.checkpoint is not None:
            local_checkpoint.take(spark, plan.checkpoint)
        lines = BatchLines()
        stack.callback(_measured(spark, plan.metrics, lines).close)
        spark.streams.addListener(lines)
        for cluster in plan.clusters:
            stack.enter_context(cluster.watched(lambda: lines.heard))
        stop.running = True
        try:
            plan.work(JobContext(spark, stop, lines))
        except BaseException:
            stop.failed = not stop.asked()  # a signal may come while all this is closed
            raise
    if not stop.asked():
        say(f"done: {lines.total}")


def _measured(spark: SparkSession, config: MetricsSection | None, lines: BatchLines) -> Metrics:
    """Measure the query, for the job's log lines, and for Prometheus where the file says so."""
    served = (None, None, None) if config is None else (config.port, config.host, config.events)
    metrics = start_metrics(spark, *served, lines)
    if metrics.port is not None:
        say(f"metrics at port {metrics.port}")
    return metrics


def _session(plan: Plan, name: str, verbose: bool, stderr: int | None) -> SparkSession:
    """Start the session, and log a line before and after, as it takes seconds."""
    master = plan.spark.get("spark.master")
    began = time.monotonic()
    say(f"starting Spark {pyspark.__version__}{f' on {master}' if master else ''} …")
    spark = session.start(name, plan.spark, verbose=verbose, stderr=stderr)
    say("; ".join(filter(None, (f"Spark is up after {time.monotonic() - began:.0f} s", plan.beginning))))
    return spark
