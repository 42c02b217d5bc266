"""DescribeConfigs: the configuration of topics and brokers."""

from __future__ import annotations

from enum import IntEnum

from spark_eos.kafka.net.schema import (
    BOOL,
    INT8,
    STRING,
    Bool,
    Int8,
    Int16,
    Int32,
    NullableString,
    Record,
    Request,
    Some,
    String,
    array,
    record,
)


class ConfigResource(IntEnum):
    TOPIC = 2
    BROKER = 4


class ConfigSynonym(Record):
    name: String
    value: NullableString
    source: Int8


class DescribedConfig(Record):
    """A setting of a broker or topic. ``value`` is None where it is sensitive."""

    name: String
    value: NullableString
    read_only: Bool
    config_source: Int8
    is_sensitive: Bool
    synonyms: tuple[ConfigSynonym, ...]
    config_type: Int8
    documentation: NullableString


class DescribeConfigsResult(Record):
    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String
    configs: tuple[DescribedConfig, ...]


class DescribeConfigsResponse(Record):
    throttle_time_ms: Int32
    results: Some[DescribeConfigsResult]


#: A request about a broker must go to that broker.
DESCRIBE_CONFIGS = Request(
    "DescribeConfigs",
    32,
    4,
    4,
    asks=record(
        resources=array(
            record(resource_type=INT8, resource_name=STRING, configuration_keys=array(STRING)),
        ),
        include_synonyms=BOOL,
        include_documentation=BOOL,
    ),
    answers=DescribeConfigsResponse,
)
