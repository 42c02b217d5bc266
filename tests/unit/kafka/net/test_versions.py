"""Which version of a request is used with a broker."""

from __future__ import annotations

import pytest

from spark_eos.errors import KafkaError
from spark_eos.kafka.net.client import _version
from spark_eos.kafka.net.handshake import ApiVersions
from spark_eos.kafka.net.metadata import METADATA


@pytest.mark.parametrize(
    "versions",
    [
        {},
        {METADATA.api: (0, METADATA.first - 1)},
        {METADATA.api: (METADATA.last + 1, METADATA.last + 9)},
    ],
    ids=["unknown", "too old", "too new"],
)
def test_a_broker_that_does_not_speak_a_request_is_refused(versions):
    """The error names broker, request and versions; nothing is sent in a version that one side does not know."""
    with pytest.raises(KafkaError, match="Broker 7 speaks Metadata in versions") as caught:
        _version(7, METADATA, ApiVersions(versions, {}))
    assert caught.value.condition == "EOS_BROKER_UNSUITABLE"
    assert "Apache Kafka 3.6" in caught.value.hint


def test_a_version_that_only_the_broker_speaks_is_not_used():
    """Newer versions that only the broker knows are not used."""
    for last in (METADATA.last, METADATA.last + 5):
        assert _version(7, METADATA, ApiVersions({METADATA.api: (0, last)}, {})) == METADATA.last
