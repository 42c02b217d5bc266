"""The ``kafka.*`` properties that this package's own client knows: some it follows, others have no effect.

Most of the latter tune parts that only librdkafka has: its threads, queues, caches and group membership. They change no
row, and are ignored. Names are librdkafka's, as in `canonical`. Every other property is refused, also one that
librdkafka would have: a misspelled property about TLS would connect without.
"""

from __future__ import annotations

import difflib

from spark_eos.errors import invalid_option, stop
from spark_eos.kafka.config.java_names import HANDLERS, OWN, RENAMED, WITHOUT_TWIN, canonical
from spark_eos.kafka.config.properties import KafkaProperties

FOLLOWED = frozenset(
    [
        # Connections
        *("bootstrap.servers", "broker.address.family", "client.dns.lookup", "client.id", "socket.timeout.ms"),
        *("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password"),
        *("sasl.kerberos.keytab", "sasl.kerberos.principal", "sasl.kerberos.service.name"),
        *("enable.sasl.oauthbearer.unsecure.jwt", "sasl.oauthbearer.config", "sasl.oauthbearer.extensions"),
        *("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"),
        *("sasl.oauthbearer.scope", "sasl.oauthbearer.token.endpoint.url"),
        *("enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm"),
        *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem"),
        *("ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.crl.location", "ssl.cipher.suites"),
        *("ssl.keystore.location", "ssl.keystore.password", "https.ca.location", "https.ca.pem"),
        *OWN,
        # Readers
        *("client.rack", "fetch.max.bytes", "fetch.wait.max.ms", "group.id", "isolation.level"),
        "max.partition.fetch.bytes",
        # Writers
        *("batch.size", "compression.level", "compression.type", "partitioner"),
    ]
)
WITHOUT_EFFECT = frozenset(
    [
        # Connections: the own client opens few, when it needs them, and has its own timeouts.
        *("broker.address.ttl", "connections.max.idle.ms", "enable.metrics.push", "socket.blocking.max.ms"),
        *("reconnect.backoff.jitter.ms", "reconnect.backoff.max.ms", "reconnect.backoff.ms"),
        *("socket.connection.setup.timeout.ms", "socket.keepalive.enable", "socket.max.fails"),
        *("socket.nagle.disable", "socket.receive.buffer.bytes", "socket.send.buffer.bytes"),
        # Metadata: requested when a topic or leader is unknown or has changed. Requests never create topics.
        *("allow.auto.create.topics", "metadata.max.age.ms", "metadata.recovery.rebootstrap.trigger.ms"),
        *("metadata.recovery.strategy", "topic.metadata.propagation.max.ms", "topic.metadata.refresh.fast.cnt"),
        *("topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.interval.ms"),
        "topic.metadata.refresh.sparse",
        # Versions: requested from each broker.
        *("api.version.fallback.ms", "api.version.request", "api.version.request.timeout.ms"),
        "broker.version.fallback",
        # Kerberos: tickets are requested and renewed when they are needed.
        *("sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin"),
        "sasl.oauthbearer.method",  # the other properties say where tokens come from
        # Tokens for an assertion, or from a cloud's metadata service: rejected by the properties that select them.
        "sasl.oauthbearer.metadata.authentication.type",
        *("sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud"),
        *("sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss"),
        *("sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds"),
        *("sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.jwt.template.file"),
        *("sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.grant.type"),
        # librdkafka's own memory, threads and events.
        *("enable.random.seed", "enabled_events", "internal.termination.signal", "log.queue", "log.thread.name"),
        *("log.connection.close", "message.copy.max.bytes", "receive.message.max.bytes", "statistics.interval.ms"),
        # Fetches do not wait for more records, and the next fetch is always in flight.
        *("fetch.error.backoff.ms", "fetch.min.bytes", "fetch.queue.backoff.ms"),
        *("queued.max.messages.kbytes", "queued.min.messages", "consume.callback.max.messages", "max.poll.records"),
        "check.crcs",  # they are always checked
        # Groups: none is joined, and the checkpoint has the offsets.
        *("auto.commit.interval.ms", "auto.offset.reset", "coordinator.query.interval.ms"),
        *("enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof", "group.instance.id"),
        *("group.protocol", "group.protocol.type", "group.remote.assignor", "heartbeat.interval.ms"),
        *("max.poll.interval.ms", "offset.store.method", "offset.store.path"),
        *("offset.store.sync.interval.ms", "partition.assignment.strategy", "session.timeout.ms"),
        "share.acknowledgement.mode",
        # Transactions: the sink refuses most of these, and sets them itself.
        *("acks", "delivery.timeout.ms", "enable.gapless.guarantee", "enable.idempotence", "transaction.timeout.ms"),
        "transactional.id",
        # Retries: a batch is sent again, unchanged and in order, until the transaction's time is over.
        *("max.in.flight.requests.per.connection", "retries", "retry.backoff.max.ms", "retry.backoff.ms"),
        # Queues: batches are sealed and sent as rows come, and the memory for them is fixed.
        *("queue.buffering.backpressure.threshold", "queue.buffering.max.kbytes", "queue.buffering.max.messages"),
        *("batch.num.messages", "linger.ms", "message.max.bytes", "sticky.partitioning.linger.ms"),
        *("produce.offset.report", "queuing.strategy"),
    ]
)
_KNOWN = FOLLOWED | WITHOUT_EFFECT
#: Names for hints.
_NAMES = sorted(_KNOWN | WITHOUT_TWIN | {*RENAMED, *HANDLERS, "buffer.memory", "sasl.jaas.config"})


def check_names(kafka: KafkaProperties) -> None:
    """Raise OptionError for a property that is unknown or refused, also by `canonical`, or whose value is no text."""
    for key, value in canonical(kafka).items():
        if value != value.encode(errors="ignore").decode():
            raise invalid_option(f"kafka.{key}", "not UTF-8", "a text in UTF-8")
        if key not in _KNOWN:
            near = difflib.get_close_matches(key, _NAMES, n=1)
            if near:
                raise stop("EOS_OPTION_UNKNOWN.near", option=f"kafka.{key}", nearest=f"kafka.{near[0]}")
            raise stop(
                "EOS_OPTION_UNKNOWN.option",
                option=f"kafka.{key}",
                names="the properties of librdkafka and of the Java client, each after 'kafka.'",
            )
