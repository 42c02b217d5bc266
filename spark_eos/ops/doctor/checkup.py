"""``spark-eos doctor``: goes through all checks of a planned query. Exit code: 0 if all is well, 1 if something is
wrong, 2 if something could not be determined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from spark_eos.errors import ConnectionFailed, EosError, Unauthorized
from spark_eos.ops.answer import Answer
from spark_eos.ops.doctor import brokers, findings, tables, topics
from spark_eos.ops.doctor.brokers import ClusterFacts, cluster_facts
from spark_eos.ops.doctor.findings import Finding, PlannedQuery, Severity, Tools
from spark_eos.ops.doctor.sink_checks import (
    Rule,
    acls_command,
    judged,
    ledger_rule,
    rules,
    transaction_rules,
)
from spark_eos.ops.doctor.topics import TopicFacts, topic_facts
from spark_eos.sink.preflight import KAFKA_DEFAULT_MAX_TIMEOUT_MS


def doctor(query: PlannedQuery) -> Answer:
    """Run all checks. Raises EosError where no broker answers, or a client property is invalid."""
    checkup = _Checkup(query, cluster_facts(query.options.kafka))
    found = list(checkup.findings())
    return Answer(findings.as_json(found), findings.as_text(found), findings.exit_code(found))


@dataclass
class _Checkup:
    """What is known so far. ``known``: topics that were looked up; ``unseen``: those of them that could not be, with
    the error."""

    query: PlannedQuery
    cluster: ClusterFacts
    known: dict[str, TopicFacts | None] = field(default_factory=dict)
    unseen: dict[str, EosError] = field(default_factory=dict)

    @property
    def tools(self) -> Tools:
        return Tools(self.query.servers)

    @property
    def timeout_ms(self) -> int:
        """For how long a transaction may stay open, in milliseconds."""
        most = self.cluster.least("transaction.max.timeout.ms")
        return self.query.options.transaction_timeout_ms or most or KAFKA_DEFAULT_MAX_TIMEOUT_MS

    def findings(self) -> Iterator[Finding]:
        query = self.query
        yield from (tables.table(each, query.storage) for each in query.tables)
        yield from self._judged(rules(query))
        yield from self._topics()
        if query.writes_topics:
            yield from self._ledger()
        yield from self._unseen()
        if query.writes_topics or query.options.group_id is not None:
            yield from brokers.readable(self.cluster)
            yield from self._internal_topic("__consumer_offsets")
            yield from brokers.offsets_retention(self.cluster, query.longest_stop_s, query.options.group_id)
        if query.writes_topics:
            yield from self._transactions()

    def _judged(self, some: Iterable[Rule]) -> Iterator[Finding]:
        return (judged(rule, self.query, len(self.cluster.nodes)) for rule in some)

    def _ledger(self) -> Iterator[Finding]:
        name = self.query.options.ledger_topic
        found = self._facts(name)
        if found is not None:
            yield from topics.durability("ledger", found, self.cluster, self.tools)
            yield from topics.beside_the_state(found, self.cluster, self.tools)
        elif name not in self.unseen:
            yield Finding(
                "ledger",
                f"ledger {name}",
                Severity.WARNING,
                "it does not exist yet",
                "The first start of a query creates it, with as many replicas as __transaction_state has, if this user "
                "has the right to CREATE it; otherwise it stops (EOS_LEDGER_NOT_CREATED).",
                (acls_command(self.query) + " --create-ledger",),
            )
            return
        yield from self._judged([ledger_rule(self.query, self._broker())])

    def _transactions(self) -> Iterator[Finding]:
        query = self.query
        yield from self._judged(transaction_rules(query, self._broker(), fencing=self.cluster.fencing))
        yield from self._internal_topic("__transaction_state")
        yield from brokers.versions(self.cluster, self.tools)
        yield from brokers.timeouts(self.timeout_ms, two_phase=query.options.two_phase)
        yield from brokers.ids_retention(self.cluster, query.longest_stop_s)

    def _broker(self) -> dict[str, str] | None:
        """The settings of a broker, with the shortest limit of any: each may be the coordinator of a transaction."""
        name, config = "transaction.max.timeout.ms", self.cluster.config
        least = self.cluster.least(name)
        return None if not config else {**next(iter(config.values())), **({} if least is None else {name: str(least)})}

    def _topics(self) -> Iterator[Finding]:
        query, stop_s = self.query, self.query.longest_stop_s
        inputs = [found for topic in query.inputs if (found := self._facts(topic)) is not None]
        for topic in inputs:
            yield from topics.durability("input", topic, self.cluster, self.tools)
            yield from topics.of_an_input(topic, stop_s, self.tools)
        for name in query.outputs:
            found = self._facts(name)
            if found is not None:
                yield from topics.durability("output", found, self.cluster, self.tools)
                yield from topics.of_an_output(found, self.timeout_ms, stop_s, self.tools)
                yield from topics.sizes(inputs, found, self.tools)
        letters = query.options.dead_letters
        found = None if letters is None else self._facts(letters)
        if found is not None:
            yield from topics.durability("dead letters", found, self.cluster, self.tools)
            yield from topics.retention("dead letters", found, self.timeout_ms, stop_s, self.tools)

    def _unseen(self) -> Iterator[Finding]:
        """The topics of which nothing is known; of those that this user may not describe, the sink's checks tell."""
        for topic, error in self.unseen.items():
            if not isinstance(error, Unauthorized):
                subject, message = f"topic {topic}", error.message
                yield Finding("settings", subject, Severity.UNKNOWN, message, error.hint, (), error.condition)

    def _internal_topic(self, topic: str) -> Iterator[Finding]:
        found = self._facts(topic)
        if found is not None and found.config is not None:
            yield from topics.durability("topic", found, self.cluster, self.tools)
        else:
            yield from brokers.internal_topic(topic, self.cluster)

    def _facts(self, topic: str) -> TopicFacts | None:
        """None if the topic does not exist, or is `unseen`."""
        if topic not in self.known:
            try:
                self.known[topic] = topic_facts(self.query.options.kafka, topic)
            except ConnectionFailed:
                raise
            except EosError as error:
                self.known[topic], self.unseen[topic] = None, error
        return self.known[topic]
