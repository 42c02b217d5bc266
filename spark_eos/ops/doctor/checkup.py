"""``spark-eos doctor``: goes through all checks of a planned query. Exit code: 0 if all is well, 1 if something is
wrong, 2 if something could not be determined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from spark_eos.errors import ConnectionFailed, EosError, Unauthorized
from spark_eos.ops.answer import Answer
from spark_eos.ops.doctor import brokers, findings, topics
from spark_eos.ops.doctor.brokers import ClusterFacts, cluster_facts
from spark_eos.ops.doctor.findings import UNKNOWN, WARNING, Finding, PlannedQuery, Tools
from spark_eos.ops.doctor.sink_checks import SinkChecks, acls_command, check_table
from spark_eos.ops.doctor.topics import TopicFacts, topic_facts
from spark_eos.sink.preflight import KAFKA_DEFAULT_MAX_TIMEOUT_MS


def doctor(query: PlannedQuery) -> Answer:
    """Run all checks. Raises EosError where no broker answers, or a client property is invalid."""
    all_ = list(_Checkup(query, cluster_facts(query.client)).findings())
    return Answer(findings.as_json(all_), findings.as_text(all_), findings.exit_code(all_))


@dataclass
class _Checkup:
    """The facts that are known so far. ``known``: topics that were looked up; ``unseen``: topics that could not be,
    with the error."""

    query: PlannedQuery
    cluster: ClusterFacts
    known: dict[str, TopicFacts | None] = field(default_factory=dict)
    unseen: dict[str, EosError] = field(default_factory=dict)

    def findings(self) -> Iterator[Finding]:
        query, cluster, options = self.query, self.cluster, self.query.options
        tools, checks, stop_s = Tools(query.servers), SinkChecks(query, cluster), query.longest_stop_s
        most = cluster.least("transaction.max.timeout.ms")
        timeout_ms = options.transaction_timeout_ms or most or KAFKA_DEFAULT_MAX_TIMEOUT_MS
        yield from (check_table(each, query.storage) for each in query.tables)
        yield from checks.topics()
        yield from self._topics(timeout_ms, tools)
        if query.writes_topics:
            yield from self._ledger(checks, tools)
        for topic, error in self.unseen.items():
            if not isinstance(error, Unauthorized):  # the sink's checks report topics that this user may not describe
                yield Finding("settings", f"topic {topic}", UNKNOWN, error.message, error.hint, (), error.condition)
        if query.writes_topics or options.group_id is not None:
            yield from brokers.readable(cluster)
            yield from self._internal_topic("__consumer_offsets", tools)
            yield from brokers.offsets_retention(cluster, stop_s, options.group_id)
        if query.writes_topics:
            yield from checks.transactions()
            yield from self._internal_topic("__transaction_state", tools)
            yield from brokers.versions(cluster, tools)
            yield from brokers.timeouts(timeout_ms, two_phase=options.two_phase)
            yield from brokers.ids_retention(cluster, stop_s)

    def _ledger(self, checks: SinkChecks, tools: Tools) -> Iterator[Finding]:
        name = self.query.options.ledger_topic
        ledger = self._facts(name)
        if ledger is not None:
            yield from topics.durability("ledger", ledger, self.cluster, tools)
            yield from topics.beside_the_state(ledger, self.cluster, tools)
        if ledger is not None or name in self.unseen:
            yield checks.ledger()
            return
        yield Finding(
            "ledger",
            f"ledger {name}",
            WARNING,
            "it does not exist yet",
            "The first start of a query creates it, with as many replicas as __transaction_state has, if this user "
            "has the right to CREATE it; otherwise it stops (EOS_LEDGER_NOT_CREATED).",
            (acls_command(self.query) + " --create-ledger",),
        )

    def _topics(self, timeout_ms: int, tools: Tools) -> Iterator[Finding]:
        query, stop_s = self.query, self.query.longest_stop_s
        inputs = [facts for topic in query.inputs if (facts := self._facts(topic)) is not None]
        for facts in inputs:
            yield from topics.durability("input", facts, self.cluster, tools)
            yield from topics.of_an_input(facts, stop_s, tools)
        for topic in query.outputs:
            output = self._facts(topic)
            if output is not None:
                yield from topics.durability("output", output, self.cluster, tools)
                yield from topics.of_an_output(output, timeout_ms, stop_s, tools)
                yield from topics.sizes(inputs, output, tools)
        name = query.options.dead_letters
        dead_letters = None if name is None else self._facts(name)
        if dead_letters is not None:
            yield from topics.durability("dead letters", dead_letters, self.cluster, tools)
            yield from topics.retention("dead letters", dead_letters, timeout_ms, stop_s, tools)

    def _internal_topic(self, topic: str, tools: Tools) -> Iterator[Finding]:
        facts = self._facts(topic)
        if facts is not None and facts.config is not None:
            yield from topics.durability("topic", facts, self.cluster, tools)
        else:
            yield from brokers.internal_topic(topic, self.cluster)

    def _facts(self, topic: str) -> TopicFacts | None:
        """Return the topic's facts; None if it does not exist, or is `unseen`."""
        if topic not in self.known:
            try:
                self.known[topic] = topic_facts(self.query.client, topic)
            except ConnectionFailed:
                raise
            except EosError as error:
                self.known[topic], self.unseen[topic] = None, error
        return self.known[topic]
