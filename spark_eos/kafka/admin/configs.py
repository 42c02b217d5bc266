"""Configuration of brokers and topics; creating topics and adding partitions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from spark_eos.base import system
from spark_eos.base.log import logger
from spark_eos.base.printable import excerpt
from spark_eos.base.retry import retrying
from spark_eos.kafka.admin.topics import TIMEOUT_S, describe_topics
from spark_eos.kafka.codes import ADMIN_RETRIES, OK, TOPIC_RETRIES, Code, name_of
from spark_eos.kafka.errors import configs_unreadable, refusal, settings_refusal
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.create_partitions import CREATE_PARTITIONS, CreatePartitionsResult
from spark_eos.kafka.requests.create_topics import CREATE_TOPICS, CreateTopicsResult
from spark_eos.kafka.requests.describe_configs import DESCRIBE_CONFIGS, ConfigResource, DescribeConfigsResult

_TRY_S = 4.0
_CLEANUP = "cleanup.policy"

#: A broker's configuration, by name; None where this user may not read it.
BrokerConfig = dict[str, str] | None


def broker_config(client: BrokerClient) -> BrokerConfig:
    """Return the configuration of some broker, {name: value}; a sensitive value is empty. None where this user may not
    read it.

    Raises ConnectionFailed and KafkaError (EOS_KAFKA_REFUSED).
    """
    began = system.monotonic()
    code = int(Code.REQUEST_TIMED_OUT)
    for _ in retrying(TIMEOUT_S):
        nodes = client.brokers()
        if not nodes:  # the only one may just have been fenced
            continue
        node = random.choice(nodes)
        answer = client.ask(node, DESCRIBE_CONFIGS, _describe(ConfigResource.BROKER, str(node)), _TRY_S)
        code = int(Code.REQUEST_TIMED_OUT) if answer is None else answer.results[0].error_code
        if answer is not None and code == OK:
            return {c.name: c.value or "" for c in answer.results[0].configs}
        if code == Code.CLUSTER_AUTHORIZATION_FAILED:
            return None
        if code not in ADMIN_RETRIES:
            break
    raise settings_refusal(client.bootstrap_servers, code, system.monotonic() - began)


def each_broker_setting(client: BrokerClient, name: str) -> dict[int, str] | None:
    """Return one setting of every broker that answers, {broker: value}; empty where the broker has no such setting.
    None where this user may not read it.

    Raises ConnectionFailed and KafkaError (EOS_KAFKA_REFUSED).
    """
    results = _each_broker(client, [name])
    return None if results is None else {node: next(iter(of.values()), "") for node, of in results.items()}


def _each_broker(client: BrokerClient, names: list[str] | None) -> dict[int, dict[str, str]] | None:
    """Return the settings by broker. Brokers that do not answer are asked again, as a restart may change settings; then
    they are left out, with a warning."""
    began = system.monotonic()
    results: dict[int, DescribeConfigsResult] = {}
    code, silent = int(Code.REQUEST_TIMED_OUT), ""
    for _ in retrying(TIMEOUT_S):
        requests = {node: _describe(ConfigResource.BROKER, str(node), names) for node in client.brokers()}
        answers = client.ask_each(requests, DESCRIBE_CONFIGS, _TRY_S)
        results = {node: answer.results[0] for node, answer in answers.items() if answer is not None}
        silent = ", ".join(str(node) for node in sorted(answers) if node not in results)
        codes = [result.error_code for result in results.values()] or [Code.REQUEST_TIMED_OUT]
        if Code.CLUSTER_AUTHORIZATION_FAILED in codes:
            return None
        code = next((code for code in codes if code != OK), OK)
        if code == OK and not silent:
            break
    if code != OK:
        raise settings_refusal(client.bootstrap_servers, code, system.monotonic() - began)
    if silent:
        logger.warning("brokers %s do not answer: their settings are not known", silent)
    return {node: {c.name: c.value or "" for c in of.configs} for node, of in results.items()}


def each_broker_config(client: BrokerClient) -> dict[int, dict[str, str]] | None:
    """Return the configuration of every broker that answers, {broker: {name: value}}; a sensitive value is empty. None
    where this user may not read it.

    Raises ConnectionFailed and KafkaError (EOS_KAFKA_REFUSED).
    """
    results = _each_broker(client, None)
    return None if results is None else {node: dict(settings) for node, settings in results.items()}


def topic_config(client: BrokerClient, topic: str) -> dict[str, str]:
    """Return the configuration of a topic, {name: value}. The topic may have been created a moment ago.

    Raises ConnectionFailed, Unauthorized, TopicError (EOS_TOPIC_MISSING) and KafkaError (EOS_KAFKA_REFUSED).
    """
    began = system.monotonic()
    code = int(Code.REQUEST_TIMED_OUT)
    for _ in retrying(TIMEOUT_S):
        answer = client.ask_any(DESCRIBE_CONFIGS, _describe(ConfigResource.TOPIC, topic), TIMEOUT_S)
        code = answer.results[0].error_code
        if code == OK:
            return {c.name: c.value or "" for c in answer.results[0].configs}
        if code == Code.TOPIC_AUTHORIZATION_FAILED:
            raise configs_unreadable(topic, client.bootstrap_servers)
        if code not in TOPIC_RETRIES:
            break
    raise refusal(client.bootstrap_servers, topic, code, system.monotonic() - began)


def cleanup_policies(client: BrokerClient, topics: Iterable[str]) -> dict[str, str]:
    """Return the cleanup.policy of each topic, by one request; topics whose configuration this user may not read are
    left out.

    Raises ConnectionFailed.
    """
    names = list(topics)
    if not names:
        return {}
    resources = [_resource(ConfigResource.TOPIC, name, [_CLEANUP]) for name in names]
    answer = client.ask_any(DESCRIBE_CONFIGS, _request(resources), TIMEOUT_S)
    configs_of = {of.resource_name: of.configs for of in answer.results if of.error_code == OK}
    return {name: c.value or "" for name, configs in configs_of.items() for c in configs if c.name == _CLEANUP}


def create_topic(client: BrokerClient, topic: str, partitions: int, replication: int, config: Mapping[str, str]) -> str:
    """Create a topic, unless it exists. Returns the reason why it is refused, or an empty text. ``replication``: -1 for
    the brokers' default.

    It is refused only if no broker knows the topic: an earlier attempt may have created it. Raises as
    `describe_topics`.
    """
    values = {
        "topics": [
            {
                "name": topic,
                "num_partitions": partitions,
                "replication_factor": replication,
                "assignments": [],
                "configs": [{"name": name, "value": value} for name, value in config.items()],
            }
        ],
        "timeout_ms": int(1000 * _TRY_S),
        "validate_only": False,
    }
    refused = _retried(lambda: client.ask_any(CREATE_TOPICS, values, TIMEOUT_S).topics[0], Code.TOPIC_ALREADY_EXISTS)
    return "" if not refused or describe_topics(client, [topic], missing_ok=True) else refused


def add_partitions(client: BrokerClient, topic: str, partitions: int) -> str:
    """Increase a topic's partitions to this number, unless it has as many, which may be the work of an earlier attempt.
    Returns the reason why that is refused, or an empty text. Raises ConnectionFailed.
    """
    values = {
        "topics": [{"name": topic, "count": partitions, "assignments": None}],
        "timeout_ms": int(1000 * _TRY_S),
        "validate_only": False,
    }
    # The code for a topic that has as many or more.
    return _retried(lambda: client.ask_any(CREATE_PARTITIONS, values, TIMEOUT_S).results[0], Code.INVALID_PARTITIONS)


def _retried(ask: Callable[[], CreateTopicsResult | CreatePartitionsResult], done: Code) -> str:
    """Return the broker's message, or the name of its error code; empty for a code that means that it is ``done``. The
    request is repeated while a retry may help."""
    code, message = int(Code.REQUEST_TIMED_OUT), ""
    for _ in retrying(TIMEOUT_S):
        answer = ask()
        code, message = answer.error_code, excerpt(answer.error_message or "")
        if code not in ADMIN_RETRIES:
            break
    return "" if code in (OK, done) else message or name_of(code)


def _describe(kind: ConfigResource, name: str, keys: list[str] | None = None) -> dict[str, object]:
    """Return a DescribeConfigs request. ``keys``: names of the settings; None for all."""
    return _request([_resource(kind, name, keys)])


def _request(resources: Sequence[dict[str, object]]) -> dict[str, object]:
    return {"resources": resources, "include_synonyms": False, "include_documentation": False}


def _resource(kind: ConfigResource, name: str, keys: list[str] | None) -> dict[str, object]:
    return {"resource_type": int(kind), "resource_name": name, "configuration_keys": keys}
