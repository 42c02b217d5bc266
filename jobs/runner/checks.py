"""Checks of a job before Spark starts, as mistakes that need no Spark are said within seconds, and of its cluster while
the query is silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from spark_eos.errors import ConnectionFailed, EosError, stop
from spark_eos.kafka.admin.topics import TIMEOUT_S, describe_topics
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.options.parse import SinkOptions
from spark_eos.sink.preflight import check_sink_cluster

from .lines import say

#: A setting by which Spark distributes modules, which cannot be imported before Spark starts.
PY_FILES = "spark.submit.pyFiles"
#: Seconds between two requests, and the timeout of each.
_ASK_S = 1.0
#: If the query has made progress within this time, its cluster responds, and no request is needed.
_QUIET_S = 2.0
#: Seconds of silence until the first message, and the maximum between two messages.
_FIRST_S = 5
_LONGEST_S = 60
#: A reason that is less specific than any other.
_TIMED_OUT = "Timed out"


@dataclass(frozen=True)
class Check:
    """A check that a job does before Spark starts, without writing anything. ``what``: describes it; ``look`` raises
    EosError."""

    what: str
    look: Callable[[], object]


def output_check(sink: SinkOptions) -> Check:
    """Return the check of brokers, topics and group of a sink, which its first micro-batch makes again."""
    topics = [f"the topic {sink.topic}" if sink.topic else "the brokers' settings"]
    topics += [f"the dead-letter topic {sink.dead_letters}"] if sink.dead_letters else []
    topics += [f"the group {sink.group_id}"] if sink.group_id else []
    return Check(f"{', '.join(topics)}, to write there", lambda: check_sink_cluster(broker_client(sink.kafka), sink))


class Silence:
    """Logs for how long a cluster has not answered: after 5 s, 10 s, 20 s, …, and when it answers again."""

    def __init__(self, servers: str, now: Callable[[], float] = time.monotonic) -> None:
        self._servers = servers
        self._now = now
        self._since = now()
        self._next = _FIRST_S
        self._said = False

    def broken(self) -> None:
        """Note an answer, and log it after a logged silence."""
        if self._said:
            say(f"{self._servers} answers again, after {self._now() - self._since:.0f} s")
        self._since, self._next, self._said = self._now(), _FIRST_S, False

    def goes_on(self) -> None:
        """Note that there is no answer, and log it at growing intervals."""
        if self._now() - self._since >= self._next:
            say(f"no answer from {self._servers} for {self._next} s")
            self._next += min(self._next, _LONGEST_S)
            self._said = True


@dataclass(frozen=True)
class JobCluster:
    """A cluster that the job needs, the topics to ask it about, and the topics among them that must exist at the
    start."""

    kafka: KafkaProperties
    topics: Sequence[str]
    required: Sequence[str] = ()

    def __str__(self) -> str:
        topics = f" and on it {', '.join(self.required)}" if self.required else ""
        return f"the cluster at {self.kafka.bootstrap_servers}{topics}"

    def expect(self) -> None:
        """Wait until it answers, and for no longer than the query would.

        Raises ConnectionFailed, at once where waiting does not help, and TopicError (EOS_TOPIC_MISSING) for a required
        topic.
        """
        silence = Silence(self.kafka.bootstrap_servers)
        began = time.monotonic()
        why = ""
        while (error := self._no_answer()) is not None:
            if error.condition != "EOS_KAFKA_UNREACHABLE":
                raise error
            silence.goes_on()
            waited, reason = time.monotonic() - began, str(error.parameters["reason"])
            if not why or _TIMED_OUT not in reason:
                why = reason
            if waited >= TIMEOUT_S:
                servers = self.kafka.bootstrap_servers
                raise stop(
                    "EOS_KAFKA_UNREACHABLE.brokers",
                    bootstrap_servers=servers,
                    waited_s=round(waited, 1),
                    reason=why,
                    about="",
                )
        silence.broken()
        describe_topics(broker_client(self.kafka), self.required)

    def _no_answer(self) -> ConnectionFailed | None:
        """Say why it does not answer within a second; None if it answers. A refusal is an answer, too: the query finds
        out whether it needs topics that this user may not see."""
        try:
            describe_topics(broker_client(self.kafka), self.topics, _ASK_S, missing_ok=True)
        except ConnectionFailed as error:
            return error
        except EosError:
            pass
        return None

    @contextmanager
    def watched(self, heard: Callable[[], float]) -> Iterator[None]:
        """Log, during the block, when the cluster does not answer. ``heard``: when there was the last sign of the
        query."""
        end = threading.Event()
        watch = threading.Thread(target=self._watch, args=(heard, end), name="cluster", daemon=True)
        watch.start()
        try:
            yield
        finally:
            end.set()

    def _watch(self, heard: Callable[[], float], end: threading.Event) -> None:
        silence = Silence(self.kafka.bootstrap_servers)
        while not end.wait(_ASK_S):
            answered = time.monotonic() - heard() < _QUIET_S or self._no_answer() is None
            if end.is_set():
                return
            silence.broken() if answered else silence.goes_on()
