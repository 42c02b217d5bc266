"""The Spark session of a job: workers use this interpreter and, in a checkout, its code; the log is quiet."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import string
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import spark_eos
from spark_eos.base.log import LEVEL_VARIABLE
from spark_eos.errors import stop
from spark_eos.kafka.config.memory_file import memory_file
from spark_eos.tools.devcluster.java import find_java

from . import fork_server
from .spark_home import HOME, installed, without_archives

ROOT = Path(__file__).resolve().parents[2]
#: Set by spark-submit, whose JVM has started this process.
_GATEWAY = "PYSPARK_GATEWAY_PORT"
#: Read by pyspark when it starts a JVM.
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
#: Characters that need no escape anywhere in a Java properties file.
_PLAIN = frozenset(string.ascii_letters + string.digits + "._-/")
#: Java options, which precede Spark's settings on the JVM's command line.
_JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
_LOG_SETTINGS = Path(spark_eos.__file__).with_name("log4j2.properties")
#: Workers do not repeat lines that the job logs itself, such as one for each commit.
_WORKER_LOG_LEVEL = "WARNING"


def check_java() -> None:
    """Raise DevClusterError (EOS_JAVA_NOT_FOUND) where there is no Java for the JVM that `start` is to start. Not where
    Spark's own spark-env.sh may name one."""
    home = Path(os.environ.get(HOME) or installed())
    settings = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    if _starts_jvm() and not (settings / "spark-env.sh").exists():
        find_java()


def _starts_jvm() -> bool:
    return _GATEWAY not in os.environ and SparkContext._gateway is None  # noqa: SLF001  # no other way


def start(name: str, conf: Mapping[str, str], *, verbose: bool = False, stderr: int | None = None) -> SparkSession:
    """Start a session, or take the one that spark-submit has started, with ``eos-kafka`` registered in it.

    ``stderr``: a file descriptor for the stderr of the JVM, where this call starts one.
    """
    # Spark logs it where pandas is 3 or newer, though no job needs pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    # A worker of another interpreter lacks our packages and shows up as "Python worker failed to connect back".
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SparkConf(loadDefaults=False).setAppName(name).setAll(list(_with_defaults(conf, verbose).items()))
    if _starts_jvm():
        with fork_server.used(dict(settings.getAll())):
            # As getOrCreate does it, which then finds this context, but for where the JVM's stderr and its settings go.
            SparkContext(conf=settings, gateway=_launch(dict(settings.getAll()), verbose, stderr))
    spark = SparkSession.builder.config(conf=settings).getOrCreate()
    _quieten(spark, verbose)
    spark_eos.register(spark)
    return spark


def _launch(settings: Mapping[str, str], verbose: bool, stderr: int | None) -> object:
    """Start Spark's JVM with settings from a file that only this user can read. PySpark itself puts all of them on the
    JVM's command line, which every user of the machine can read."""
    text = "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())
    with ExitStack() as stack:
        file = stack.enter_context(_as_file(text))
        stack.enter_context(_variable(_SUBMIT_ARGUMENTS, _submit_arguments(file)))
        if not verbose:
            # In spark.driver.extraJavaOptions it would hide the value in the user's spark-defaults.conf.
            options = (os.environ.get(_JAVA_OPTIONS), f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}")
            stack.enter_context(_variable(_JAVA_OPTIONS, " ".join(filter(None, options))))
        stack.enter_context(without_archives(settings.get("spark.master", "")))
        return launch_gateway(None, None if stderr is None else {"stderr": stderr})  # type: ignore[no-untyped-call]


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Yield a path at which only processes of this user can read the text. The file is in memory where the system
    supports that: one on a disk would stay, with its secrets, if this process were killed."""
    memory = memory_file("spark.conf")
    if memory is not None:
        with memory as file:
            file.write(text.encode())
            file.flush()
            yield f"/proc/{os.getpid()}/fd/{file.fileno()}"
    else:
        with tempfile.TemporaryDirectory(prefix="spark-eos-") as folder:
            named = Path(folder) / "spark.conf"
            named.write_text(text)
            yield str(named)


def _submit_arguments(file: str) -> str:
    """Return the user's arguments for spark-submit, and this file of settings.

    Raises ConfigError for a second file of settings, of which spark-submit would read one only.
    """
    given = os.environ.get(_SUBMIT_ARGUMENTS) or "pyspark-shell"
    if "--properties-file" in given:
        raise stop("EOS_CONFIG_INVALID_VALUE.submit_arguments")
    return f"--properties-file {shlex.quote(file)} --load-spark-defaults {given}"


@contextmanager
def _variable(name: str, text: str) -> Iterator[None]:
    """Set a variable of the environment within the block."""
    before = os.environ.get(name)
    os.environ[name] = text
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _escaped(text: str) -> str:
    """Escape a key or value for a Java properties file."""
    utf_16 = text.encode("utf-16-be", "surrogatepass")
    units = (int.from_bytes(utf_16[at : at + 2], "big") for at in range(0, len(utf_16), 2))
    return "".join(chr(unit) if chr(unit) in _PLAIN else f"\\u{unit:04x}" for unit in units)


def _with_defaults(conf: Mapping[str, str], verbose: bool) -> dict[str, str]:
    log_level = os.environ.get(LEVEL_VARIABLE, "DEBUG" if verbose else _WORKER_LOG_LEVEL)
    defaults = {
        f"spark.executorEnv.{LEVEL_VARIABLE}": log_level,
        "spark.python.daemon.module": "spark_eos.worker_daemon",
        "spark.ui.showConsoleProgress": "false",
    }
    # Installed, the package is found by every process; folders of packages must not come before the standard library.
    checkout = str(ROOT) if __package__ == "jobs.runner" else None
    if python_path := os.pathsep.join(filter(None, (checkout, os.environ.get("PYTHONPATH")))):
        defaults["spark.executorEnv.PYTHONPATH"] = python_path
    if hasattr(socket, "AF_UNIX"):
        # Over TCP each stage of Python waits 40 ms for its first bytes: Spark sends small pieces without TCP_NODELAY.
        defaults["spark.python.unix.domain.socket.enabled"] = "true"
    return defaults | dict(conf)


def _quieten(spark: SparkSession, verbose: bool) -> None:
    """Set log levels of a JVM that spark-submit has started without our settings."""
    if verbose:
        spark.sparkContext.setLogLevel("INFO")
        return
    context = spark.sparkContext
    jvm, accumulators = context._jvm, context._accumulatorServer  # noqa: SLF001  # nothing public leads there
    assert jvm is not None and accumulators is not None
    # A query that is stopped leaves this server with half a message: a stack of its own, and of no use.
    accumulators.handle_error = lambda request, client_address: None  # type: ignore[method-assign]  # of this one
    jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure(jvm.java.net.URI(_LOG_SETTINGS.as_uri()))
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # pyspark logs each error that it raises, stack and all; the job prints errors itself.
        logging.getLogger(logger).disabled = True
    for logger in ("py4j.java_gateway", "py4j.clientserver"):
        logging.getLogger(logger).disabled = True  # the same, when the JVM has ended
    logging.getLogger().addFilter(lambda record: record.module not in ("java_gateway", "clientserver"))
    if LEVEL_VARIABLE not in os.environ:  # as for workers
        logging.getLogger("spark_eos").addFilter(
            lambda record: record.levelno > logging.INFO or record.module != "commit"
        )
    # And once more, as a warning: a JVM that got the same signal as the job is gone before it can be told to stop.
    warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM", RuntimeWarning)
