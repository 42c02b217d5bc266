"""Translates the Java client's property names to librdkafka's.

A few names that librdkafka has not are kept for our own code, which translates them for librdkafka when it makes one of
its clients: Java's stores (`stores`), and what tokens are made of (`tokens`).
"""

from __future__ import annotations

import re

from spark_eos.kafka.config.jaas import login_properties, parse_jaas
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.config.unsupported import unsupported

#: Alternative names of a property, of the Java client or aliases of librdkafka, with the name used internally.
RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.request.size": "message.max.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

#: Java names without a librdkafka equivalent; ignoring them changes neither results nor security.
WITHOUT_TWIN = frozenset(
    {
        "auto.include.jmx.reporter",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "max.block.ms",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        # Brokers check tokens, and name the user by a claim; a client only sends them.
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "socket.connection.setup.timeout.max.ms",
    }
)

#: Names of our own, or of the Java client's that librdkafka has not, which it gets in another form.
OWN = frozenset(
    {
        *("aws.profile", "aws.region", "aws.role.arn", "aws.role.session.name", "aws.sts.region"),
        "sasl.oauthbearer.header.urlencode",
        *("ssl.truststore.location", "ssl.truststore.password"),
    }
)

#: Java names that the user has to replace, with what to use instead.
_REFUSED = {
    "partitioner.class": "use 'kafka.partitioner' (murmur2_random is the Java client's) or the 'partition' column",
    "sasl.login.class": "there is no JVM client; use sasl.username and sasl.password",
    "security.providers": "there is no JVM client",
    "ssl.engine.factory.class": "there is no JVM client; use ssl.{ca,certificate,key}.location",
    "ssl.keymanager.algorithm": "there is no JVM client",
    "ssl.trustmanager.algorithm": "there is no JVM client",
    "default.topic.config": "write the topic's properties beside the others",
    # librdkafka has these, but a query's other connections would go without.
    "ssl.curves.list": "OpenSSL decides",
    "ssl.engine.id": "keys are read from files or stores only",
    "ssl.engine.location": "keys are read from files or stores only",
    "ssl.providers": "OpenSSL's own configuration decides",
    "ssl.sigalgs.list": "OpenSSL decides",
    "sasl.oauthbearer.assertion.file": "tokens are issued for client credentials only",
    "sasl.oauthbearer.assertion.private.key.file": "tokens are issued for client credentials only",
    "sasl.oauthbearer.assertion.private.key.pem": "tokens are issued for client credentials only",
}

#: Classes of the Java client and of AWS that do what is done here.
HANDLERS = {
    "sasl.login.callback.handler.class": {
        "OAuthBearerLoginCallbackHandler",
        "OAuthBearerUnsecuredLoginCallbackHandler",
        "IAMOAuthBearerLoginCallbackHandler",
    },
    "sasl.client.callback.handler.class": {"IAMClientCallbackHandler"},
    "sasl.oauthbearer.jwt.retriever.class": {
        "ClientCredentialsJwtRetriever",
        "DefaultJwtRetriever",
        "FileJwtRetriever",
    },
}
_ALTERNATIVES = (
    "Use kafka.sasl.oauthbearer.token.endpoint.url with kafka.sasl.oauthbearer.client.credentials.client.id and "
    "….client.secret, or kafka.sasl.mechanism=AWS_MSK_IAM, or kafka.sasl.username and kafka.sasl.password."
)


def canonical(kafka: KafkaProperties) -> dict[str, str]:
    """The properties under librdkafka's names, and those of `OWN`. Raises OptionError for properties that cannot be
    translated."""
    for key, why in _REFUSED.items():
        if key in kafka:
            raise unsupported(key, f"cannot be used: {why}.", hint="Remove it.")
    result = {key: value for key, value in kafka.items() if key not in RENAMED and key not in WITHOUT_TWIN}
    for java, name in RENAMED.items():
        if java in kafka:
            result.setdefault(name, kafka[java])  # librdkafka's own name takes precedence
    if "buffer.memory" in result:
        bytes_ = result.pop("buffer.memory")
        result.setdefault("queue.buffering.max.kbytes", str(int(bytes_) // 1024) if bytes_.isdigit() else bytes_)
    _translate_handlers(result)
    _translate_jaas(result)
    _translate_protocols(result)
    _translate_stores(result)
    return result


def _translate_handlers(properties: dict[str, str]) -> None:
    """Java's own handlers do what is done here, so naming them changes nothing, but for that of AWS's tokens."""
    for key, known in HANDLERS.items():
        given = properties.pop(key, None)
        name = (given or "").rpartition(".")[2]
        if given and name not in known:
            raise unsupported(key, f"is {given}, and there is no JVM client to run it.", hint=_ALTERNATIVES)
        if name.startswith("IAM"):
            properties["sasl.mechanism"] = "AWS_MSK_IAM"


def _translate_jaas(properties: dict[str, str]) -> None:
    text = properties.pop("sasl.jaas.config", None)
    for name, value in login_properties(parse_jaas(text)).items() if text is not None else ():
        if name == "sasl.mechanism":
            properties[name] = value
        else:
            properties.setdefault(name, value)


def _translate_protocols(properties: dict[str, str]) -> None:
    """OpenSSL offers TLS 1.2 and 1.3; who wants no more than these, or 1.2 only, gets no less than that."""
    for key in ("ssl.protocol", "ssl.enabled.protocols"):
        given = {name.strip() for name in properties.pop(key, "TLSv1.2").split(",")}
        enough = {"TLSv1.2", "TLSv1.3", "TLS"} if key == "ssl.protocol" else {"TLSv1.2"}
        if not given & enough:
            raise unsupported(
                key,
                f"is {','.join(sorted(given))}, but OpenSSL offers TLSv1.2 and TLSv1.3.",
                hint="Remove it, or add TLSv1.2. The brokers decide which one is used.",
            )


def _translate_stores(properties: dict[str, str]) -> None:
    """``ssl.truststore.*`` and ``ssl.keystore.*``. Those of type PEM are plain files; what kind the others are is seen
    when they are read."""
    if "ssl.endpoint.identification.algorithm" in properties:  # the Java client disables it with an empty string
        algorithm = properties["ssl.endpoint.identification.algorithm"].strip().lower()
        properties["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    for key in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"):
        if key in properties:
            properties[key] = _wrapped(properties[key])
    for store, files in (
        ("truststore", ("ssl.ca.location",)),
        ("keystore", ("ssl.certificate.location", "ssl.key.location")),
    ):
        type_ = properties.pop(f"ssl.{store}.type", "JKS").upper()
        if type_ not in ("PEM", "JKS", "PKCS12"):
            raise unsupported(
                f"ssl.{store}.type",
                f"is {type_}; PEM and PKCS12 are read here.",
                hint="Convert it: keytool -importkeystore -srckeystore STORE -srcstoretype "
                f"{type_} -destkeystore STORE.p12 -deststoretype PKCS12",
            )
        if type_ == "PEM":
            location = properties.pop(f"ssl.{store}.location", None)
            properties.pop(f"ssl.{store}.password", None)
            for name in files if location is not None else ():
                properties.setdefault(name, location or "")


def _wrapped(pem: str) -> str:
    """OpenSSL wants lines; Java takes a PEM on one line, too, with spaces or escaped line ends between its parts."""

    def wrap(found: re.Match[str]) -> str:
        data = re.sub(r"\s+", "", found[2])
        lines = [data[i : i + 64] for i in range(0, len(data), 64)]
        return "\n".join([f"-----BEGIN {found[1]}-----", *lines, f"-----END {found[1]}-----", ""])

    block = r"-----BEGIN ([A-Z0-9 ]+)-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END \1-----\s*"
    return re.sub(block, wrap, pem.replace("\\n", "\n"))
