"""Whether a log is still the one that was read: asked of a model of replicas, of which nothing else is known here."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import Unauthorized
from spark_eos.kafka.codes import Code
from spark_eos.kafka.records.batches import Damage, OtherEpoch, UnsupportedFormat
from spark_eos.kafka.requests.fetch import FetchResponse
from spark_eos.kafka.requests.offset_for_leader_epoch import UNKNOWN, EpochEnd
from spark_eos.source import epochs as epochs_module
from spark_eos.source.epochs import LeaderEpochs, Leaders, Noted, RangeEpochs, leaders_of
from tests.support.judges.conditions import raises
from tests.support.models.replicas import PLACE, Model

STEP = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 6), st.just(0)),
    st.tuples(st.just("follow"), st.integers(0, 2), st.integers(0, 6)),
    st.tuples(st.just("elect"), st.integers(0, 2), st.integers(0, 1)),
    st.tuples(st.just("lose"), st.integers(1, 6), st.integers(0, 1)),
    st.tuples(st.just("note"), st.integers(0, 100), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0)),
)


@given(st.lists(STEP, max_size=60))
def test_a_log_that_was_cut_below_an_offset_is_noticed_and_no_other(steps):
    """Any elections, clean or not, of replicas that lag behind, come back with old ends or lose their newest records in
    a power failure; the query reads anywhere, and may be started anew at any time."""
    model, epochs = Model(), None
    noted: dict[int, tuple[Noted, list[object]]] = {}
    for kind, one, other in steps:
        if kind == "write":
            model.write(one)
        elif kind == "follow" and one != model.leader:
            model.replicas[one].follow(model.replicas[model.leader], other)
        elif kind == "elect":
            model.elect(one, skipped=other)
        elif kind == "lose":
            replica = model.replicas[model.leader]
            replica.cut(max(0, len(replica.log) - one))
            model.elect(model.leader, skipped=other)
        elif kind == "restart":
            epochs = None
        epochs = epochs or LeaderEpochs(model.leaders())
        newest = {PLACE: model.epoch}
        if kind == "note":
            offset = one % (len(model.log) + 1)
            lower = [at for at, (_, read) in noted.items() if at <= offset and model.log[:at] == read]
            least = {PLACE: noted[max(lower)][0].epoch} if lower else {}
            epoch = epochs.at({PLACE: offset}, newest, least)[PLACE]
            assert epoch == (model.log[offset - 1][1] if offset else UNKNOWN)
            noted[offset] = Noted(offset, epoch), model.log[:offset]
        for at, read in noted.values():
            found = epochs.diverged({PLACE: at}, newest)
            assert bool(found) == (model.log[: at.offset] != read)
            if found:
                same = next(i for i in range(at.offset + 1) if model.log[: i + 1] != read[: i + 1])
                assert found[PLACE] >= same  # nothing is read twice


def test_a_query_that_keeps_up_asks_each_leader_once():
    """Whatever the number of micro-batches."""
    model = Model()
    model.write(5)
    model.elect(0)
    epochs = LeaderEpochs(model.leaders())
    at = Noted(0, UNKNOWN)
    for _ in range(20):
        model.write(3)
        newest = {PLACE: model.epoch}
        assert not epochs.diverged({PLACE: at}, newest)
        at = Noted(len(model.log), epochs.at({PLACE: len(model.log)}, newest, {})[PLACE])
    assert model.asked == 1
    model.elect(0)
    for _ in range(20):
        assert not epochs.diverged({PLACE: at}, {PLACE: model.epoch})
    assert model.asked == 2


def test_a_replica_that_was_filled_from_a_compacted_log_is_not_another_log():
    """It never heard of an epoch of which no record was left."""
    model = Model()
    model.write(5)
    model.elect(0)
    model.write(5)
    at = Noted(10, 1)
    model.elect(0)
    model.write(5)
    model.replicas[0].log[5:10] = [None] * 5
    model.replicas[1].follow(model.replicas[0], 15)
    model.elect(1)
    assert model.replicas[1].answer(1).epoch == 0
    assert not LeaderEpochs(model.leaders()).diverged({PLACE: at}, {PLACE: model.epoch})


def test_where_a_log_begins_nothing_is_noted():
    """An answer repeats the epoch that was asked about, and another replica may begin earlier."""
    model = Model()
    model.elect(0, skipped=2)
    model.write(9)
    model.elect(0)
    model.write(1)
    model.replicas[0].begun[0] = (3, 4)
    model.replicas[0].first = 4
    epochs = LeaderEpochs(model.leaders())
    assert [epochs.at({PLACE: at}, {PLACE: 4}, {})[PLACE] for at in (4, 5, 9, 10)] == [UNKNOWN, 3, 3, 4]


@pytest.mark.usefixtures("clock")
def test_a_leader_that_knows_only_earlier_epochs_is_asked_again_and_then_refused():
    """One that has not noticed that there is a newer one; it cannot say whether the log is the same."""
    model = Model()
    model.write(5)
    assert LeaderEpochs(model.leaders()).diverged({PLACE: Noted(5, 7)}, {PLACE: 0}) == {PLACE: 5}
    assert model.asked > 1


def test_a_log_without_epochs_tells_nothing():
    """Formats before v2 have none: nothing is noted, and no request is sent."""
    model = Model()
    model.write(5)
    epochs = LeaderEpochs(
        Leaders(lambda asked: dict.fromkeys(asked, EpochEnd(-1, -1)), model._begins, lambda *_: (5, -1))
    )
    assert epochs.at({PLACE: 5}, {PLACE: 3}, {}) == {PLACE: UNKNOWN}
    assert epochs.at({PLACE: 5}, {}, {}) == {PLACE: UNKNOWN}
    assert not epochs.diverged({PLACE: Noted(5, UNKNOWN)}, {PLACE: 3})


@dataclass
class Batch:
    base: int
    last: int
    leader_epoch: int


#: A record of epoch 1 before offset 10, which the leader does not know: it has epoch 0 up to offset 5.
AT, END = Noted(10, 1), EpochEnd(0, 5)
SEEN, SIZE = [Batch(10, 19, 2)], 100
EMPTY, MOVED, BEHIND = (FetchResponse(code, 0) for code in (0, Code.NOT_LEADER_OR_FOLLOWER, Code.OFFSET_OUT_OF_RANGE))


@pytest.fixture
def diverged_by(monkeypatch):
    """``diverged_by(answers, batches, end, begin)``: what is said of `AT`, whose log a broker shows by these responses,
    one after the other, and which goes from ``begin`` to ``end``."""

    def diverged(answers, batches=SEEN, end=30, begin=0):
        said = iter(answers)

        def fetched(client, topic, partition, offset, *_, max_wait_ms, **__):
            assert max_wait_ms == 500, "a broker may need some time for records in remote storage"
            return (BEHIND, b"") if offset < begin else next(said)

        requests = {
            "epoch_ends": lambda *_: {PLACE: END},
            "begin_offsets": lambda *_: {"t": {0: begin}},
            "end_offsets": lambda *_: {"t": {0: end}},
            "fetch_once": fetched,
            "walk_batches": lambda *_: walked(batches),
        }
        for name, answer in requests.items():
            monkeypatch.setattr(epochs_module, name, answer)
        client: Any = SimpleNamespace(bootstrap_servers="h:1", fetch_wait_ms=500)
        return LeaderEpochs(leaders_of(client, 0.2)).diverged({PLACE: AT}, {PLACE: 2})

    return diverged


def walked(batches):
    for batch in batches:
        if isinstance(batch, Exception):
            raise batch
        yield batch


HAS = FetchResponse(0, SIZE), b""


@pytest.mark.parametrize(
    "first", [None, (MOVED, b""), (EMPTY, b""), (BEHIND, b"")], ids=["silent", "moved", "empty", "behind"]
)
def test_a_leader_that_does_not_show_its_log_is_asked_again(diverged_by, first):
    """A quota, a leader that moves or lags behind: no answer is not another log."""
    assert diverged_by([first, first, HAS]) == {}
    assert diverged_by([first, HAS], [Batch(7, 9, 2)]) == {PLACE: 5}


@pytest.mark.parametrize(
    ("answer", "batches"),
    [
        (None, SEEN),
        ((MOVED, b""), SEEN),
        ((EMPTY, b""), SEEN),
        (HAS, [Damage("a checksum")]),
        (HAS, [UnsupportedFormat("v1")]),
    ],
    ids=["silent", "moved", "empty", "damaged", "of no known format"],
)
def test_a_leader_that_never_shows_its_log_stops_the_query(diverged_by, answer, batches):
    """It starts again by itself: nothing is known to be lost, and records that cannot be read are not another log."""
    reason = str(batches[0]) if isinstance(batches[0], Damage) else ""
    with raises("EOS_KAFKA_UNREACHABLE", "t-0 at offset 5", reason) as caught:
        diverged_by(repeat(answer), batches)
    assert caught.value.restart_helps


def test_who_may_not_read_the_log_is_told_so(diverged_by):
    """At once."""
    with pytest.raises(Unauthorized):
        diverged_by([(FetchResponse(Code.TOPIC_AUTHORIZATION_FAILED, 0), b"")])


@pytest.mark.parametrize("answer", [EMPTY, BEHIND], ids=["empty", "behind"])
def test_a_log_that_ends_there_is_another_one(diverged_by, answer):
    """By its end, which a leader tells only when it knows it."""
    assert diverged_by([(answer, b"")], end=5) == {PLACE: 5}


@pytest.mark.parametrize(("begin", "found"), [(20, {}), (7, {PLACE: 5})])
def test_a_log_that_begins_later_by_now_is_told_by_its_first_record(diverged_by, begin, found):
    """What the leader has told of its epochs was about records that were deleted since. Nothing is silent about that:
    a record before the noted offset is another one, and one behind it contradicts nothing."""
    assert diverged_by([HAS], [Batch(begin, begin + 2, 2)], begin=begin) == found
    assert diverged_by([(EMPTY, b"")], end=begin, begin=begin) == found


@pytest.mark.parametrize(
    ("batches", "wrong"),
    [
        ([(0, 9, 2), (10, 19, 4)], None),
        ([(0, 9, 2), (10, 25, 4)], None),
        ([(0, 9, 2), (10, 15, 3), (20, 29, 9)], None),  # behind the range
        ([(0, 9, 2), (10, 15, 5)], 10),  # later than any that there were
        ([(0, 9, 1)], 0),  # earlier than the record before the range
        ([(0, 9, 3), (10, 19, 2)], 10),
        ([(0, 9, 2), (10, 19, 3)], 10),  # the last record had another one
        ([(0, 9, -1), (10, 19, -1)], None),
    ],
)
def test_batches_of_a_range_are_those_of_one_log(batches, wrong):
    """Epochs never fall; the last record of the range has its own."""
    seen = RangeEpochs(OffsetRange("t", 0, 0, 20, "", 2, 4, 4))
    for i, batch in enumerate(batches):
        if batch[0] == wrong:
            with pytest.raises(OtherEpoch, match=f"offset {wrong}"):
                seen.see(Batch(*batch))
            return
        seen.see(Batch(*batch))
        assert i < len(batches)
    assert wrong is None


def test_parts_of_a_range_know_what_is_known_of_them():
    """The first one of its start, the last one of its end, all of them the latest epoch."""
    whole = OffsetRange("t", 0, 0, 20, "", 2, 4, 4)
    parts = [whole.cut(0, 5), whole.cut(5, 15), whole.cut(15, 20)]
    assert [(r.first_epoch, r.last_epoch, r.most_epoch) for r in parts] == [(2, -1, 4), (-1, -1, 4), (-1, 4, 4)]
