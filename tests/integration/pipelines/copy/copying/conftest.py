"""Fixtures of copying: producers with transactions, and copies that are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.source import copying
from spark_eos.source.copying import Copied, copy_range
from spark_eos.source.fetching import Fetching
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.transactions import arrow_producers, commit_as_driver
from tests.support.waiting import wait_for


@pytest.fixture
def begin(kafka: KafkaProperties) -> Iterator[Callable[..., ArrowProducer]]:
    """See `arrow_producers`."""
    with arrow_producers(kafka) as begin:
        yield begin


@pytest.fixture
def commit(view: KafkaView) -> Callable[..., None]:
    """Flush, and end the transaction as the driver does; the rows can be seen then."""

    def end(producer: ArrowProducer, topic: str) -> None:
        producer.flush()
        commit_as_driver(producer)
        wait_for(lambda: not view.held(topic), "the markers")

    return end


@pytest.fixture
def none_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are small in tests, but are not put together here."""
    monkeypatch.setattr(copying, "is_small", lambda batch: False)


@pytest.fixture
def copy(kafka: KafkaProperties, begin: Callable[..., ArrowProducer], commit: Callable[..., None]) -> Callable:
    """``copy(source, start, end, target)``: what copying partition 0 says, when it is committed."""

    def run(source: str, start: int, end: int, target: str) -> Copied:
        own = begin()
        said = copy_range(Fetching(broker_client(kafka)), OffsetRange(source, 0, start, end), (target, 0), own)
        commit(own, target)
        return said

    return run
