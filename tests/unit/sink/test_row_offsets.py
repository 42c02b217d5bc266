"""Where rows of an open transaction lie, by a log whose answers are made here."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from fastcrc.crc32 import iscsi as crc32c

from spark_eos.errors import Unclear
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.protocol.head import Pair
from spark_eos.sink import row_offsets as module
from spark_eos.sink.row_offsets import rows_in_log
from tests.support.judges.record_batches import HEADER

OWN = Pair("id", 7, 1)
CLIENT = BrokerClient(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))
_CHECKED_FROM = 21


def batch(base: int, count: int, producer: int = OWN.producer_id) -> bytearray:
    """The header of a record batch of a transaction: nobody looks at its records here."""
    size = HEADER.size - 12
    made = bytearray(HEADER.pack(base, size, 0, 2, 0, 0x10, count - 1, 0, 0, producer, OWN.epoch, 0, count))
    made[17:_CHECKED_FROM] = crc32c(bytes(made[_CHECKED_FROM:])).to_bytes(4)
    return made


def damaged(whole: bytearray) -> bytearray:
    return whole[:-1] + bytes([whole[-1] ^ 1])


@pytest.fixture
def answers(clock: object, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """``answers([…], […])``: what the leader sends, answer by answer, the last one for ever; the offsets asked for."""

    def given(*logs: list[bytearray]) -> list[int]:
        asked: list[int] = []

        def fetch(kafka: object, topic: str, partition: int, offset: int, *_: object, **__: object) -> object:
            data = b"".join(logs[min(len(asked), len(logs) - 1)])
            asked.append(offset)
            return SimpleNamespace(error=0, size=len(data)), data

        open_ = SimpleNamespace(producer_id=OWN.producer_id, producer_epoch=OWN.epoch, current_txn_start_offset=0)
        monkeypatch.setattr(module, "describe_producers", lambda *_: [open_])
        monkeypatch.setattr(module, "fetch_once", fetch)
        return asked

    return given


def test_rows_of_others_lie_between(answers):
    """Only the transaction's own count; the next answer goes on where the last one ended."""
    asked = answers([batch(0, 2), batch(2, 5, producer=8)], [batch(7, 3)])
    assert rows_in_log(CLIENT, OWN, "t", 0, 5) == [(0, 2), (7, 3)]
    assert asked == [0, 7]


def test_what_was_read_before_a_damage_is_not_counted_twice(answers):
    """The answer is asked for again as a whole, as another one may be sound."""
    answers([batch(0, 2), damaged(batch(2, 2))], [batch(0, 2), batch(2, 2)])
    assert rows_in_log(CLIENT, OWN, "t", 0, 4) == [(0, 2), (2, 2)]


def test_rows_that_cannot_be_read_are_not_made_up(answers):
    """As many rows before a lasting damage as behind it: they must not stand for these."""
    answers([batch(0, 2), damaged(batch(2, 2))])
    with pytest.raises(Unclear, match="EOS_TRANSACTION_NOT_FOUND"):
        rows_in_log(CLIENT, OWN, "t", 0, 4)
