"""DescribeConfigs: the settings of a topic or of a broker."""

from __future__ import annotations

from enum import IntEnum

from spark_eos.kafka.net.schema import BOOL, INT8, INT16, INT32, NULLABLE_STRING, STRING, Request, array, record, some


class ConfigResource(IntEnum):
    TOPIC = 2
    BROKER = 4


#: What is asked about one broker, that broker itself must answer.
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
    answers=record(
        throttle_time_ms=INT32,
        results=some(
            record(
                error_code=INT16,
                error_message=NULLABLE_STRING,
                resource_type=INT8,
                resource_name=STRING,
                configs=array(
                    record(
                        name=STRING,
                        value=NULLABLE_STRING,
                        read_only=BOOL,
                        config_source=INT8,
                        is_sensitive=BOOL,
                        synonyms=array(record(name=STRING, value=NULLABLE_STRING, source=INT8)),
                        config_type=INT8,
                        documentation=NULLABLE_STRING,
                    )
                ),
            )
        ),
    ),
)
