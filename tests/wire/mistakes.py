"""Mistakes of I/O, as patches that put them into our code."""

from __future__ import annotations

import itertools
import math
import struct
from collections import Counter
from collections.abc import Callable
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
from spark_eos.kafka.records import batches, encode, passing
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

from . import query, scenarios

Patch = Callable[[pytest.MonkeyPatch], None]

_SEQUENCE_AT, _COUNT_AT, _CHECKED_FROM, _CHECKSUM_AT = 53, 57, 21, 17
_COUNT = struct.Struct(">i")


def number_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Whatever comes is the answer to what was asked first."""

    def answer(self: Any, fields: FieldReader, read: Any) -> Any:
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

    patch.setattr(Connection, "_answer", answer)


def late_answer_on_a_kept_connection(patch: pytest.MonkeyPatch) -> None:
    """A connection that was given up for its silence is used again, and its late answer is taken for the next one."""
    number_not_checked(patch)

    def lost(self: ConnectionPool, given_up: Any) -> None:
        given_up._asked.clear()
        given_up._unsent.clear()
        self.give_back(given_up)

    patch.setattr(ConnectionPool, "lost", lost)


def partial_write_taken_for_whole(patch: pytest.MonkeyPatch) -> None:
    def push(self: Any) -> None:
        if self._unsent:
            self._socket.send(memoryview(b"".join(self._unsent)))
            self._unsent.clear()

    patch.setattr(Connection, "push", push)


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


def _judged_as(code: int, other: int) -> Patch:
    judge = sender.Sender._judge_one

    def put_in(patch: pytest.MonkeyPatch) -> None:
        def judging(self: Any, queue: Any, sealed: Any, answer: Any, now: float) -> None:
            errors = {place: other if error == code else error for place, error in answer.errors.items()}
            judge(self, queue, sealed, replace(answer, errors=errors), now)

        patch.setattr(sender.Sender, "_judge_one", judging)

    return put_in


out_of_order_taken_for_written = _judged_as(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, OK)
timed_out_taken_for_written = _judged_as(Code.REQUEST_TIMED_OUT, OK)
fenced_taken_for_written = _judged_as(Code.INVALID_PRODUCER_EPOCH, OK)


def duplicate_taken_for_an_error(patch: pytest.MonkeyPatch) -> None:
    judge = sender.Sender._judge_one

    def judging(self: Any, queue: Any, sealed: Any, answer: Any, now: float) -> None:
        error = answer.errors[queue.partition]
        if error == Code.DUPLICATE_SEQUENCE_NUMBER:
            raise self._failure(Cause.from_code(error))
        judge(self, queue, sealed, answer, now)

    patch.setattr(sender.Sender, "_judge_one", judging)


def silence_taken_for_committed(patch: pytest.MonkeyPatch) -> None:
    end = scenarios.end_own_txn

    def believing(*asked: Any) -> int:
        code = end(*asked)
        return OK if code is None else code

    patch.setattr(scenarios, "end_own_txn", believing)


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


def aborted_index_ignored(patch: pytest.MonkeyPatch) -> None:
    walk = scenarios.walk_batches
    patch.setattr(scenarios, "walk_batches", lambda data, size, aborted: walk(data, size, ()))


def silence_without_end(patch: pytest.MonkeyPatch) -> None:
    ends = end_txn.end_txns

    def patient(client: BrokerClient, asked: Any, commit: bool, version: int, _: float | None = None) -> Any:
        before, client.silence_s = client.silence_s, math.inf
        try:
            return ends(client, asked, commit, version)
        finally:
            client.silence_s = before

    patch.setattr(end_txn, "end_txns", patient)


def batch_before_its_addition(patch: pytest.MonkeyPatch) -> None:
    """A partition's first batch is sent, and the coordinator is told of the partition with the next one."""
    add = additions.Additions.add
    waiting: dict[int, set[Any]] = {}

    def late(self: Any, places: Any) -> Cause | None:
        due = waiting.pop(id(self), set())
        waiting[id(self)] = set(places)
        return add(self, due)

    patch.setattr(additions.Additions, "add", late)


def unanswered_addition_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    """What was under way when the connection broke is not asked again."""
    add = additions.add_partitions_to_txn

    def believing(client: Any, transaction: Any, places: Any, seconds: float) -> Any:
        codes = add(client, transaction, places, seconds)
        return dict.fromkeys(places, OK) if codes is None else codes

    patch.setattr(additions, "add_partitions_to_txn", believing)


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


def error_of_a_flush_swallowed(patch: pytest.MonkeyPatch) -> None:
    flush = arrow.ArrowProducer.flush

    def silently(self: Any) -> None:
        try:
            flush(self)
        except EosError:
            return

    patch.setattr(arrow.ArrowProducer, "flush", silently)


# Of the ports, in a whole query


def no_answer_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    judge = coordinator.TransactionCoordinator._judge

    def believing(self: Any, pair: Any, code: int | None) -> EndTxnAnswer:
        return EndTxnAnswer.DONE if code is None else judge(self, pair, code)

    patch.setattr(coordinator.TransactionCoordinator, "_judge", believing)


def decision_without_an_answer(patch: pytest.MonkeyPatch) -> None:
    """A head whose EndTxn nobody has answered counts as published."""
    end = ledger.KafkaTerm._end

    def believing(self: Any, commit: bool) -> int | None:
        code = end(self, commit)
        return OK if code is None else code

    patch.setattr(ledger.KafkaTerm, "_end", believing)


def aborted_heads_read(patch: pytest.MonkeyPatch) -> None:
    walk = ledger_log.walk_batches
    patch.setattr(ledger_log, "walk_batches", lambda data, size, aborted: walk(data, size, ()))


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


def version_given_up(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that does not speak the version with two-phase commit is asked by one without it."""
    ask = init_producer_id.ask_init

    def contented(client: Any, name: str, timeout_ms: int, *, two_phase: bool = False) -> Any:
        try:
            return ask(client, name, timeout_ms, two_phase=two_phase)
        except KafkaError:
            return ask(client, name, timeout_ms)

    patch.setattr(init_producer_id, "ask_init", contented)


def prepared_transaction_kept(patch: pytest.MonkeyPatch) -> None:
    """InitProducerId asks to keep what is open, which brokers refuse so far."""
    ask = BrokerClient.ask

    def keeping(self: Any, node: int, request: Any, values: Any, *more: Any) -> Any:
        kept = {"keep_prepared_txn": True} if "keep_prepared_txn" in values else {}
        return ask(self, node, request, {**values, **kept}, *more)

    patch.setattr(BrokerClient, "ask", keeping)


def forgotten_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Only the first run's transactions never expire, and no task looks at what the coordinator says of its own."""
    init, held = arrow.init_producer_id, attempt.check_held

    def init_of(client: Any, name: str, timeout_ms: int, *, two_phase: bool = False) -> Any:
        return init(client, name, timeout_ms, two_phase=two_phase and name.startswith(f"tx-{query.QUERY}-1-"))

    patch.setattr(arrow, "init_producer_id", init_of)
    patch.setattr(attempt, "check_held", lambda pair, described, **_: held(pair, described))


def leftovers_left_to_their_timeout(patch: pytest.MonkeyPatch) -> None:
    for module in (abort_module, commit_module):
        patch.setattr(module, "abort_all", lambda *_: ())


# Of copies


def memory_used_again(patch: pytest.MonkeyPatch) -> None:
    """The next answer is put where batches lie that are still in flight."""
    patch.setattr(FetchConnection, "take_buffer", lambda self: self.buffer)


def aborted_rows_gathered(patch: pytest.MonkeyPatch) -> None:
    decode = small_ranges.decode
    patch.setattr(small_ranges, "decode", lambda data, range_, aborted, **how: decode(data, range_, (), **how))


def a_part_taken_for_all(patch: pytest.MonkeyPatch) -> None:
    """Of ranges that are read together, whatever has come."""
    decode = small_ranges.decode

    def whole(data: Any, range_: Any, aborted: Any, **how: Any) -> Any:
        return replace(decode(data, range_, aborted, **how), next_offset=range_.end)

    patch.setattr(small_ranges, "decode", whole)


def edges_passed_on(patch: pytest.MonkeyPatch) -> None:
    """With rows that were not asked for."""
    passes = passing.passes
    patch.setattr(copying, "passes", lambda batch, start, end: passes(batch, 0, 1 << 62))


def aborted_rows_copied(patch: pytest.MonkeyPatch) -> None:
    find = raw.find_batches
    patch.setattr(raw, "find_batches", lambda data, size, start, end, _, *more: find(data, size, start, end, (), *more))


def whole_batches_not_counted(patch: pytest.MonkeyPatch) -> None:
    """The next rows have the sequence numbers of a batch that was passed on."""
    take = arrow.ArrowProducer._take_sequences

    def forgetful(self: Any, topic: str, partition: int, count: int) -> int:
        sequence = take(self, topic, partition, count)
        self._topics[topic].sequences[partition] = sequence + 1
        return sequence

    patch.setattr(arrow.ArrowProducer, "_take_sequences", forgetful)


def halves_lost(patch: pytest.MonkeyPatch) -> None:
    """Of a batch that is too large, the first half is sent alone."""
    halves = refusals.halves
    patch.setattr(refusals, "halves", lambda sealed, encoder: [next(iter(halves(sealed, encoder)))])
