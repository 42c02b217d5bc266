"""Mistakes of I/O, as patches that put them into our code."""

from __future__ import annotations

import contextlib
import itertools
import math
import struct
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from crc32c import crc32c

from spark_eos.errors import EosError, KafkaError
from spark_eos.kafka.codes import OK, Code
from spark_eos.kafka.errors import Cause
from spark_eos.kafka.net import connection
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.connection import Connection
from spark_eos.kafka.net.pool import ConnectionPool
from spark_eos.kafka.net.schema import FieldReader
from spark_eos.kafka.producer import additions, arrow, refusals, sender
from spark_eos.kafka.records import batches, encode
from spark_eos.kafka.requests import end_txn, init_producer_id
from spark_eos.kafka.requests.fetch import FetchConnection
from spark_eos.kafka.requests.produce import ProduceConnection
from spark_eos.ledger import coordinator, ledger
from spark_eos.ledger import log as ledger_log
from spark_eos.ledger import reader as ledger_reader
from spark_eos.protocol import abort as abort_module
from spark_eos.protocol import commit as commit_module
from spark_eos.protocol.ports import EndTxnAnswer
from spark_eos.sink import attempt
from spark_eos.source import copying, raw, small_ranges
from tests.simulation.breaking import Patch, instead_of

from . import query, scenarios

_SEQUENCE_AT, _COUNT_AT, _CHECKED_FROM, _CHECKSUM_AT = 53, 57, 21, 17
_COUNT = struct.Struct(">i")


@instead_of(Connection, "_answer")
def number_not_checked(_: Any, self: Any, fields: FieldReader, read: Any) -> Any:
    """Whatever comes is the answer to what was asked first."""
    if not self._asked:
        raise OSError("the broker answers, though nothing was asked")
    number, flexible, note = self._asked.popleft()
    try:
        fields.unpack(connection._NUMBER)
        if flexible:
            fields.skip_tags()
        return number, note, read(fields)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise OSError("the broker's answer makes no sense") from None


@instead_of(ConnectionPool, "lost", number_not_checked)
def late_answer_on_a_kept_connection(_: Any, self: ConnectionPool, given_up: Any) -> None:
    """A connection that was given up for its silence is used again, and its late answer is taken for the next one."""
    given_up._asked.clear()
    given_up._unsent.clear()
    self.give_back(given_up)


@instead_of(Connection, "push")
def partial_write_taken_for_whole(_: Any, self: Any) -> None:
    """The system has taken all that it was given."""
    if self._unsent:
        self._socket.send(memoryview(b"".join(self._unsent)))
        self._unsent.clear()


def retry_with_a_new_sequence(patch: pytest.MonkeyPatch) -> None:
    """A batch that is sent again is sent as a new one."""
    send = ProduceConnection.send
    sent: set[Any] = set()
    shifts: Counter[Any] = Counter()

    def renumbering(self: Any, name: str, data: Any, timeout_ms: int) -> int:
        renumbered = {}
        for place, batch in data.items():
            key = self._socket._world, name, place
            if (key, batch) in sent:
                shifts[key] += _COUNT.unpack_from(batch, _COUNT_AT)[0]
            sent.add((key, batch))
            renumbered[place] = _shifted(batch, shifts[key])
        return send(self, name, renumbered, timeout_ms)

    patch.setattr(ProduceConnection, "send", renumbering)


def _shifted(batch: bytes, by: int) -> bytes:
    data = bytearray(batch)
    (sequence,) = _COUNT.unpack_from(batch, _SEQUENCE_AT)
    _COUNT.pack_into(data, _SEQUENCE_AT, sequence + by)
    struct.pack_into(">I", data, _CHECKSUM_AT, crc32c(bytes(data[_CHECKED_FROM:])))
    return bytes(data)


def taken_for_written(code: Code) -> Patch:
    """A partition's error in the answer to Produce is taken for success."""

    def judged(judge: Any, self: Any, queue: Any, sealed: Any, answer: Any, now: float) -> None:
        errors = {place: OK if error == code else error for place, error in answer.errors.items()}
        judge(self, queue, sealed, replace(answer, errors=errors), now)

    judged.__name__ = f"{code.name.lower()}_taken_for_written"
    return instead_of(sender.Sender, "_judge_one")(judged)


@instead_of(sender.Sender, "_judge_one")
def duplicate_taken_for_an_error(judge: Any, self: Any, queue: Any, sealed: Any, answer: Any, now: float) -> None:
    """What is there already could not be written."""
    error = answer.errors[queue.partition]
    if error == Code.DUPLICATE_SEQUENCE_NUMBER:
        raise self._failure(Cause.from_code(error))
    judge(self, queue, sealed, answer, now)


@instead_of(scenarios, "end_own_txn")
def silence_taken_for_committed(end: Any, *asked: Any) -> int:
    """Nobody has answered EndTxn."""
    code = end(*asked)
    return OK if code is None else code


def sequence_wraps_too_early(patch: pytest.MonkeyPatch) -> None:
    for module in (arrow, encode):
        patch.setattr(module, "SEQUENCES", (1 << 31) - 1)


def not_leader_taken_for_final(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sender, "PRODUCE_RETRIES", sender.PRODUCE_RETRIES - {Code.NOT_LEADER_OR_FOLLOWER})


def leader_asked_for_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerClient, "forget_leader", lambda self, topic, partition: None)


def leader_epoch_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerClient, "leader_epoch", lambda *_: -1)


def coordinator_asked_for_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerClient, "forget", lambda self, *_: None)


@instead_of(scenarios, "walk_batches")
def aborted_index_ignored(walk: Any, data: Any, size: int, aborted: Any) -> Any:
    """All that is there is read."""
    return walk(data, size, ())


@instead_of(end_txn, "end_txns")
def silence_without_end(
    ends: Any, client: BrokerClient, asked: Any, commit: bool, version: int, _: float | None = None
) -> Any:
    """A broker that says nothing is waited for."""
    before, client.silence_s = client.silence_s, math.inf
    try:
        return ends(client, asked, commit, version)
    finally:
        client.silence_s = before


def batch_before_its_addition(patch: pytest.MonkeyPatch) -> None:
    """A partition's first batch is sent, and the coordinator is told of the partition with the next one."""
    add = additions.Additions.add
    waiting: dict[int, set[Any]] = {}

    def late(self: Any, places: Any) -> Cause | None:
        due = waiting.pop(id(self), set())
        waiting[id(self)] = set(places)
        return add(self, due)

    patch.setattr(additions.Additions, "add", late)


@instead_of(additions, "add_partitions_to_txn")
def unanswered_addition_taken_for_done(add: Any, client: Any, transaction: Any, places: Any, seconds: float) -> Any:
    """What was under way when the connection broke is not asked again."""
    codes = add(client, transaction, places, seconds)
    return dict.fromkeys(places, OK) if codes is None else codes


def end_by_another_version(patch: pytest.MonkeyPatch) -> None:
    """What has no answer is asked again by the newest version."""
    ends, asked = end_txn.end_txns, Counter[Any]()

    def mixing(client: Any, transactions: Any, commit: bool, version: int, silence_s: Any = None) -> Any:
        asked[tuple(transactions)] += 1
        return ends(client, transactions, commit, 5 if asked[tuple(transactions)] > 1 else version, silence_s)

    patch.setattr(end_txn, "end_txns", mixing)


def checksum_not_checked(patch: pytest.MonkeyPatch) -> None:
    class Right(int):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    patch.setattr(batches, "crc32c", lambda data: Right(0))


@instead_of(arrow.ArrowProducer, "flush")
def error_of_a_flush_swallowed(flush: Any, self: Any) -> None:
    """Rows that nobody has written are handed over."""
    with contextlib.suppress(EosError):
        flush(self)


# Of the ports, in a whole query


@instead_of(coordinator.TransactionCoordinator, "_judge")
def no_answer_taken_for_done(judge: Any, self: Any, pair: Any, code: int | None) -> EndTxnAnswer:
    """Nobody has answered EndTxn."""
    return EndTxnAnswer.DONE if code is None else judge(self, pair, code)


@instead_of(ledger.KafkaTerm, "_end")
def decision_without_an_answer(end: Any, self: Any, commit: bool) -> int:
    """A head whose EndTxn nobody has answered counts as published."""
    code = end(self, commit)
    return OK if code is None else code


@instead_of(ledger_log, "walk_batches")
def aborted_heads_read(walk: Any, data: Any, size: int, aborted: Any) -> Any:
    """A head that was never published is the newest one."""
    return walk(data, size, ())


def ledger_under_changing_names(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes the ledger fences nobody; and that the head must come right after the newest one, which alone would
    be enough in most cases, is not looked at."""
    patch.setattr(ledger_reader.LedgerReader, "follows", lambda *_: True)
    init, taken = ledger.init_producer_id, itertools.count()
    patch.setattr(ledger, "init_producer_id", lambda client, name, ms: init(client, f"{name}-{next(taken)}", ms))


# Of two-phase commit


def plain_after_the_first_try(patch: pytest.MonkeyPatch) -> None:
    """A producer that has to be asked for again is asked for as one whose transactions expire."""
    ask, seen = init_producer_id.ask_init, Counter[Any]()

    def forgetful(client: Any, name: str, timeout_ms: int, *, two_phase: bool = False) -> Any:
        seen[client, name] += 1
        return ask(client, name, timeout_ms, two_phase=two_phase and seen[client, name] == 1)

    patch.setattr(init_producer_id, "ask_init", forgetful)


@instead_of(init_producer_id, "ask_init")
def version_given_up(ask: Any, client: Any, name: str, timeout_ms: int, *, two_phase: bool = False) -> Any:
    """A coordinator that does not speak the version with two-phase commit is asked by one without it."""
    try:
        return ask(client, name, timeout_ms, two_phase=two_phase)
    except KafkaError:
        return ask(client, name, timeout_ms)


@instead_of(BrokerClient, "ask")
def prepared_transaction_kept(ask: Any, self: Any, node: int, request: Any, values: Any, *more: Any) -> Any:
    """InitProducerId asks to keep what is open, which brokers refuse so far."""
    kept = {"keep_prepared_txn": True} if "keep_prepared_txn" in values else {}
    return ask(self, node, request, {**values, **kept}, *more)


@instead_of(attempt, "check_held")
def _expiry_not_looked_at(check_held: Any, pair: Any, described: Any, **_: Any) -> None:
    check_held(pair, described)


@instead_of(arrow, "init_producer_id", _expiry_not_looked_at)
def forgotten_after_a_restart(init: Any, client: Any, name: str, timeout_ms: int, *, two_phase: bool = False) -> Any:
    """Only the first run's transactions never expire, and no task looks at what the coordinator says of its own."""
    return init(client, name, timeout_ms, two_phase=two_phase and name.startswith(f"tx-{query.QUERY}-1-"))


def leftovers_left_to_their_timeout(patch: pytest.MonkeyPatch) -> None:
    for module in (abort_module, commit_module):
        patch.setattr(module, "abort_all", lambda *_: ())


# Of copies


def memory_used_again(patch: pytest.MonkeyPatch) -> None:
    """The next answer is put where batches lie that are still in flight."""
    patch.setattr(FetchConnection, "take_buffer", lambda self: self.buffer)


@instead_of(small_ranges, "decode")
def aborted_rows_gathered(decode: Any, data: Any, range_: Any, aborted: Any, **how: Any) -> Any:
    """All that is there is a row."""
    return decode(data, range_, (), **how)


@instead_of(small_ranges, "decode")
def a_part_taken_for_all(decode: Any, data: Any, range_: Any, aborted: Any, **how: Any) -> Any:
    """Of ranges that are read together, whatever has come."""
    return replace(decode(data, range_, aborted, **how), next_offset=range_.end)


@instead_of(copying, "passes")
def edges_passed_on(passes: Any, batch: Any, start: int, end: int) -> bool:
    """With rows that were not asked for."""
    return passes(batch, 0, 1 << 62)


@instead_of(raw, "find_batches")
def aborted_rows_copied(find: Any, data: Any, size: int, start: int, end: int, _: Any, *more: Any) -> Any:
    """All that is there is a row."""
    return find(data, size, start, end, (), *more)


@instead_of(arrow.ArrowProducer, "_take_sequences")
def whole_batches_not_counted(take: Any, self: Any, topic: str, partition: int, count: int) -> int:
    """The next rows have the sequence numbers of a batch that was passed on."""
    sequence = take(self, topic, partition, count)
    self._topics[topic].sequences[partition] = sequence + 1
    return sequence


@instead_of(refusals, "halves")
def halves_lost(halves: Any, sealed: Any, encoder: Any) -> list[Any]:
    """Of a batch that is too large, the first half is sent alone."""
    return [next(iter(halves(sealed, encoder)))]
