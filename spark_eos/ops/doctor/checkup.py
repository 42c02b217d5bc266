"""``spark-eos doctor``: asks, tries, judges. Exit code: 0 where all is well, 1 where something is wrong, 2 where
something could not be found out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from spark_eos.errors import ConnectionFailed, EosError
from spark_eos.kafka.net.client import broker_client
from spark_eos.ops.answer import Answer
from spark_eos.ops.doctor import brokers, findings, topics
from spark_eos.ops.doctor.brokers import ClusterFacts, cluster_facts
from spark_eos.ops.doctor.findings import Finding, PlannedQuery, Severity, Tools
from spark_eos.ops.doctor.sink_checks import acls_command, judged, rules, two_phase_rule
from spark_eos.ops.doctor.topics import TopicFacts, topic_facts
from spark_eos.ops.doctor.trial import try_out
from spark_eos.sink.preflight import KAFKA_DEFAULT_MAX_TIMEOUT_MS

_OWN_TOPICS = ("__transaction_state", "__consumer_offsets")


def doctor(asked: PlannedQuery, paint: findings.Paint = lambda severity, text: text) -> Answer:
    """Look at everything. Raises EosError where no broker answers, or a property is not understood."""
    visit = _Visit(asked, cluster_facts(asked.options.kafka))
    found = list(visit.findings())
    text = findings.as_text(found, visit.did, paint)
    return Answer(findings.as_json(found, visit.did), text, findings.exit_code(found))


@dataclass
class _Visit:
    """What is known so far; ``did`` says in sentences what was tried."""

    asked: PlannedQuery
    cluster: ClusterFacts
    did: list[str] = field(default_factory=list)
    known: dict[str, TopicFacts | None] = field(default_factory=dict)

    @property
    def tools(self) -> Tools:
        return Tools(self.asked.servers)

    @property
    def timeout_ms(self) -> int:
        """For how long a transaction may stay open."""
        most = self.cluster.least("transaction.max.timeout.ms")
        return self.asked.options.transaction_timeout_ms or most or KAFKA_DEFAULT_MAX_TIMEOUT_MS

    def findings(self) -> Iterator[Finding]:
        yield from brokers.readable(self.cluster)
        yield from self._rules()
        yield from self._topics()
        for topic in _OWN_TOPICS:
            yield from self._own_topic(topic)
        yield from brokers.versions(self.cluster, self.tools)
        yield from brokers.timeouts(self.timeout_ms, two_phase=self.asked.options.two_phase)
        yield from brokers.retention(self.cluster, self.asked.longest_stop_s, self.asked.options.group_id)
        yield from self._trial()

    def _rules(self) -> Iterator[Finding]:
        config = self.cluster.config
        broker = dict(next(iter(config.values()))) if config else None
        ledger = self.asked.options.ledger_topic
        there = self._facts(ledger) is not None
        if not there:
            yield Finding(
                "ledger",
                f"ledger {ledger}",
                Severity.WARNING,
                "it is not there yet",
                "The first start of a query makes it, with as many replicas as __transaction_state has, if this user "
                "may CREATE it; else it stops (EOS_LEDGER_NOT_CREATED).",
                (acls_command(self.asked) + " --create-ledger",),
            )
        for rule in rules(self.asked, broker, ledger=there):
            yield judged(rule, self.asked, len(self.cluster.nodes))

    def _topics(self) -> Iterator[Finding]:
        asked, stop_s = self.asked, self.asked.longest_stop_s
        inputs = [found for topic in asked.inputs if (found := self._facts(topic)) is not None]
        for topic in inputs:
            yield from topics.of_an_input(topic, stop_s, self.tools)
        for name in asked.outputs:
            found = self._facts(name)
            if found is not None:
                yield from topics.durability("output", found, self.cluster, self.tools)
                yield from topics.of_an_output(found, self.timeout_ms, stop_s, self.tools)
                yield from topics.sizes(inputs, found, self.tools)
        for role, other in (("dead letters", asked.options.dead_letters), ("ledger", asked.options.ledger_topic)):
            found = None if other is None else self._facts(other)
            if found is not None:
                yield from topics.durability(role, found, self.cluster, self.tools)

    def _own_topic(self, topic: str) -> Iterator[Finding]:
        found = self._facts(topic)
        if found is not None and found.config is not None:
            yield from topics.durability("topic", found, self.cluster, self.tools)
        else:
            yield from brokers.own_topic(topic, self.cluster)

    def _facts(self, topic: str) -> TopicFacts | None:
        """None where there is none, or this user may not see it: the rules say which."""
        if topic not in self.known:
            try:
                self.known[topic] = topic_facts(self.asked.options.kafka, topic)
            except ConnectionFailed:
                raise
            except EosError:
                self.known[topic] = None
        return self.known[topic]

    def _trial(self) -> Iterator[Finding]:
        asked, subject = self.asked, f"transactional ids {self.asked.options.prefix}-…"
        if not asked.trial:
            self.did.append("Nothing was tried (--no-trial): rights on transactional ids and clocks are not known.")
            why = "A query without these rights stops when it starts."
            yield Finding("rights", subject, Severity.UNKNOWN, "they were not tried (--no-trial)", why)
            return
        ledger = asked.options.ledger_topic
        there = self._facts(ledger) is not None
        try:
            trial = try_out(broker_client(asked.options.kafka), asked.options.prefix, ledger if there else None)
        except EosError as error:
            self.did.append("Transactional ids were tried, without success; what was begun expires after 10 s.")
            silent = isinstance(error, ConnectionFailed)
            severity = Severity.UNKNOWN if silent else Severity.ERROR
            fix = () if silent else (acls_command(asked),)
            yield Finding("rights", subject, severity, error.message, error.hint, fix, error.condition)
            return
        more = f", and began and aborted an empty transaction of each in {ledger}" if there else ""
        self.did.append(f"Tried: took {', '.join(sorted(trial.ids))}{more}.")
        yield Finding("rights", subject, Severity.OK, "they may be used")
        yield from brokers.clocks(trial.clocks, self.cluster.nodes)
        if asked.options.two_phase:
            yield judged(two_phase_rule(asked), asked, len(self.cluster.nodes))
