"""Which ``kafka.*`` properties have no effect on this package's own client, and which need librdkafka.

The own client follows the properties about brokers, authentication and record batches
(`spark_eos.kafka.config.librdkafka`). Most others tune parts that only librdkafka has: its threads, queues, caches and
group membership. They change no row, and are ignored. A few need librdkafka, which then reads or writes the rows, more
slowly. Names are librdkafka's, as in `canonical`.
"""

from __future__ import annotations

from typing import Literal

#: For readers and writers.
_TUNING = frozenset(
    [
        # Connections: the own client opens few, when it needs them, and has its own timeouts.
        *("broker.address.ttl", "connections.max.idle.ms", "reconnect.backoff.jitter.ms", "socket.blocking.max.ms"),
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
    ]
)
_OF_CONSUMERS = frozenset(
    [
        # Fetches never wait, as the records exist, and the next fetch is always in flight.
        *("fetch.error.backoff.ms", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms"),
        *("queued.max.messages.kbytes", "queued.min.messages", "consume.callback.max.messages", "max.poll.records"),
        "check.crcs",  # they are always checked
        # Groups: none is joined, and the checkpoint has the offsets.
        *("auto.commit.interval.ms", "auto.offset.reset", "coordinator.query.interval.ms"),
        *("enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof", "group.id", "group.instance.id"),
        *("group.protocol", "group.protocol.type", "group.remote.assignor", "heartbeat.interval.ms"),
        *("isolation.level", "max.poll.interval.ms", "offset.store.method", "offset.store.path"),
        *("offset.store.sync.interval.ms", "partition.assignment.strategy", "session.timeout.ms"),
        "share.acknowledgement.mode",
    ]
)
_OF_PRODUCERS = frozenset(
    [
        # Retries: a batch is sent again, unchanged and in order, until the transaction's time is over.
        *("max.in.flight.requests.per.connection", "retries", "retry.backoff.max.ms", "retry.backoff.ms"),
        # Queues: batches are sealed and sent as rows come, and the memory for them is fixed.
        *("queue.buffering.backpressure.threshold", "queue.buffering.max.kbytes", "queue.buffering.max.messages"),
        *("produce.offset.report", "queuing.strategy", "delivery.report.only.error"),
    ]
)
DataClientKind = Literal["consumer", "producer"]
WITHOUT_EFFECT: dict[DataClientKind, frozenset[str]] = {
    "consumer": _TUNING | _OF_CONSUMERS | _OF_PRODUCERS,
    "producer": _TUNING | _OF_PRODUCERS | _OF_CONSUMERS,
}

_BOTH = "source, sink"
#: (side, properties) → why rows that are read or written with one of them go through librdkafka. The values that are
#: named are the ones that need it; without one, any.
BY_LIBRDKAFKA: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (_BOTH, ("ssl.ca.certificate.stores",), "only librdkafka reads the stores of Windows"),
    (
        _BOTH,
        ("client.dns.lookup=resolve_canonical_bootstrap_servers_only",),
        "spark-eos's own client does not look up canonical names; it tries all addresses of a name",
    ),
    (_BOTH, ("debug", "log_level"), "they switch on librdkafka's own log"),
    (_BOTH, ("plugin.library.paths", "topic.blacklist"), "only librdkafka has plugins, and a list of topics to ignore"),
    ("sink", ("batch.num.messages", "message.max.bytes"), "our own client limits batches by `kafka.batch.size` alone"),
    ("sink", ("compression.type",), "for codecs other than none, gzip, snappy, lz4 and zstd"),
)
