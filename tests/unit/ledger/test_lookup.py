"""What became of a transaction, by the log at the place of its first record."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_eos.kafka.admin.topics import id_bytes
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.fetch import FetchResponse
from spark_eos.ledger import lookup
from spark_eos.ledger.lookup import LOOKS_S, MISSING_S, Absences, RecordLookup
from spark_eos.protocol.head import Pair, Probe
from spark_eos.protocol.ports import Visibility

PAIR, PLACE = Pair("eos-q-1-0-0", 1000, 3), Probe("out", 0, 0)


def found(patch: pytest.MonkeyPatch, *batches: dict[str, object], stable: int = 9) -> Visibility | None:
    """What is said where the log has these batches from the place on."""
    there = {"base": 0, "last": 0, "producer_id": 1000, "epoch": 3, "control": False, "aborted": False}
    answer = FetchResponse(0, 1, (), 0, stable, 9)
    patch.setattr(lookup, "fetch_once", lambda *_, **__: (answer, b""))
    patch.setattr(lookup, "walk_batches", lambda *_: (SimpleNamespace(**there | batch) for batch in batches))
    return RecordLookup(BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"}))).look(PAIR, PLACE)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ({}, Visibility.VISIBLE),
        ({"aborted": True}, Visibility.ABORTED),
        ({"epoch": 4}, Visibility.EXPIRED),
        ({"base": 1, "last": 1}, Visibility.EXPIRED),
        ({"control": True}, Visibility.EXPIRED),
    ],
)
def test_what_the_record_at_the_place_says(
    batch: dict[str, object], says: Visibility, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A marker of the same producer is no row of its transaction: in a topic that was created anew after its rows were
    written, an abort's may be there."""
    assert found(monkeypatch, batch) is says


@pytest.mark.parametrize(("stable", "says"), [(0, None), (1, Visibility.EXPIRED)])
def test_no_record_at_the_place_is_an_outcome_only_below_the_stable_end(
    stable: int, says: Visibility | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker holds the records of an open transaction back: they are there."""
    assert found(monkeypatch, stable=stable) is says


@pytest.mark.parametrize("begin", [0, 4])
@pytest.mark.parametrize(("waits", "says"), [(True, Visibility.ABORTED), (False, None)])
def test_an_offset_in_tiered_storage(
    begin: int, waits: bool, says: Visibility | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the broker has read it there, for which some wait only as long as the request says, it answers without
    records, and without a list; to a request for no bytes, always. ``begin``: of the log."""
    asked: list[tuple[int, bool]] = []

    def fetch_once(_: object, topic: str, number: int, offset: int, *, max_wait_ms: int = 0, **__: object) -> object:
        asked.append((offset, max_wait_ms > 0))
        if offset < begin:
            return FetchResponse(Code.OFFSET_OUT_OF_RANGE, 0), b""
        there = waits and max_wait_ms > 0
        return FetchResponse(0, there, ((1000, 0),) * there, begin, 9, 9, lists_aborted=there), b""

    empty = FetchResponse(0, 0, (), 0, 9, 9, lists_aborted=False)
    batch = SimpleNamespace(base=0, last=0, producer_id=1000, epoch=3, control=False, aborted=True)
    monkeypatch.setattr(lookup, "fetch_once", fetch_once)
    monkeypatch.setattr(lookup, "fetch_many", lambda *_, **__: {("out", 0): (empty, b"")})
    monkeypatch.setattr(lookup, "walk_batches", lambda _, size, *__: iter([batch] * size))
    monkeypatch.setattr(lookup, "begin_offsets", lambda *_: {"out": {0: begin}})
    monkeypatch.setattr(lookup, "end_offsets", lambda *_: {"out": {0: 9}})
    own = RecordLookup(BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"})))
    assert own.look_each([(PAIR, PLACE)]) == {(PAIR, PLACE): says}
    assert asked[-2:] == [(begin, False), (begin, True)]


@dataclass
class Log:
    """A partition as its broker answers for it: offsets of records and markers, one after the other, and transactions
    by (producer, first offset), with their marker's offset, and whether that is an abort's."""

    end: int = 0
    open: dict[int, int] = field(default_factory=dict)
    ended: dict[tuple[int, int], tuple[int, bool]] = field(default_factory=dict)

    def happens(self, producer: int, what: str) -> None:
        if what == "write":
            self.open.setdefault(producer, self.end)
        elif producer in self.open:
            self.ended[producer, self.open.pop(producer)] = self.end, what == "abort"
        else:
            return
        self.end += 1

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def fetch(self, offset: int, chance: random.Random) -> FetchResponse:
        """For no bytes, as of read_committed: the aborted transactions from this offset up to one further on, which
        the broker chooses by its index. There are none to be named at the stable end, or behind it."""
        upto = chance.randint(offset, self.end)
        aborted = [
            (producer, first)
            for (producer, first), (marker, abort) in self.ended.items()
            if abort and marker >= offset and first < upto and offset < self.stable
        ]
        return FetchResponse(0, 0, tuple(aborted), 0, self.stable, self.end)


STEPS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 4), st.sampled_from(["write", "write", "commit", "abort"]))
)


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, chance=st.randoms(use_true_random=False))
def test_a_look_at_many_places_says_of_each_what_became_of_it(steps, chance: random.Random) -> None:
    """Whatever else is open or aborted around them, and with one request for all partitions, in which the lowest
    places are asked for first."""
    logs, firsts = (Log(), Log()), []
    for number, producer, what in steps:
        log = logs[number]
        if what == "write" and producer not in log.open:
            firsts.append((Pair(f"p{producer}", producer, 0), Probe("out", number, log.end)))
        log.happens(producer, what)
    places = [place for place in firsts if chance.random() < 0.7]
    requests = 0

    def fetch_many(_: object, wanted: Mapping[tuple[str, int], tuple[int, int]], **__: object) -> object:
        nonlocal requests
        requests += 1
        return {at: (logs[at[1]].fetch(offset, chance), b"") for at, (offset, size) in wanted.items() if size == 0}

    def fetch_once(_: object, __: str, number: int, offset: int, **___: object) -> object:
        log = logs[number]
        assert log.stable == offset + 1  # nothing else is asked for alone
        aborted = [at for at, (marker, abort) in log.ended.items() if abort and marker >= offset and at[1] < offset + 1]
        return FetchResponse(0, 1, tuple(aborted), 0, log.stable, log.end), b""

    def walk_batches(_: bytes, __: int, aborted: tuple[tuple[int, int], ...]) -> object:
        (producer, first) = next((place[0].producer_id, place[1].offset) for place in asked)
        there = {"base": first, "last": first, "producer_id": producer, "epoch": 0, "control": False}
        return iter([SimpleNamespace(**there, aborted=(producer, first) in aborted)])

    asked: list[tuple[Pair, Probe]] = []
    own = RecordLookup(BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"})))
    look = own.look

    def look_alone(pair: Pair, probe: Probe) -> Visibility | None:
        asked[:] = [(pair, probe)]
        return look(pair, probe)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "fetch_many", fetch_many)
        patch.setattr(lookup, "fetch_once", fetch_once)
        patch.setattr(lookup, "walk_batches", walk_batches)
        patch.setattr(own, "look", look_alone)
        found = own.look_each(places)

    assert found.keys() == set(places)
    for pair, probe in places:
        log = logs[probe.partition]
        if log.stable > probe.offset:
            aborted = log.ended[pair.producer_id, probe.offset][1]
            assert found[pair, probe] is (Visibility.ABORTED if aborted else Visibility.VISIBLE)
        else:
            own_ones = {other.offset for _, other in places if other.partition == probe.partition}
            assert found[pair, probe] is (None if log.stable in own_ones else Visibility.BLOCKED)
    assert requests <= max([sum(p.partition == n for _, p in places) for n in (0, 1)])


@pytest.mark.parametrize(
    ("answers", "says"), [({}, None), ({("out", 0): (FetchResponse(1, 0), b"")}, Visibility.EXPIRED)]
)
def test_a_place_that_cannot_be_fetched_is_looked_at_alone(
    answers: dict[tuple[str, int], object], says: Visibility | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where retention has taken it: the log may still tell of an abort. Silence is no outcome of any transaction of
    the partition."""
    monkeypatch.setattr(lookup, "fetch_many", lambda *_, **__: answers)
    own = RecordLookup(BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"})))
    monkeypatch.setattr(own, "_gone", lambda _: set())
    monkeypatch.setattr(own, "look", lambda pair, probe: Visibility.EXPIRED)
    places = [(PAIR, PLACE), (PAIR, Probe("out", 0, 4))]
    assert own.look_each(places) == dict.fromkeys(places, says)


@pytest.mark.parametrize(
    ("looks", "is_gone"),
    [
        ({0.0: "missing"}, False),
        ({0.0: "missing", 10.0: "missing", 20.0: "missing"}, False),
        ({0.0: "missing", 10.0: "missing", 20.0: "missing", 20.5: "missing"}, True),
        ({0.0: "missing", 18_000.0: "missing"}, False),
        ({0.0: "missing", 1.0: "there", 10.0: "missing", 20.5: "missing"}, False),
        ({0.0: "missing", 1.0: "there", 10.0: "missing", 20.5: "missing", 30.5: "missing"}, True),
        ({0.0: "missing topic", 10.0: "missing", 25.0: "missing topic"}, False),
    ],
)
def test_a_place_is_gone_when_it_was_missing_at_every_look_for_a_while(looks: dict[float, str], is_gone: bool):
    """One look is none, however long ago another one was, or what was answered in between. A topic that was there again
    with fewer partitions was not missing all the time."""
    absences, said = Absences(MISSING_S, LOOKS_S), None
    for at, what in looks.items():
        if what == "there":
            absences.is_there(("out", 1))
        else:
            said = absences.is_gone(("out", 1), at, as_topic=what == "missing topic")
    assert said is is_gone


@pytest.mark.parametrize("of_many", [False, True])
def test_an_answer_ends_what_was_missing(of_many: bool, monkeypatch: pytest.MonkeyPatch):
    """A broker that has just started does not know the topic, twice within a while, and answers in between."""
    now, answers = (
        [0.0],
        [None, SimpleNamespace(error=0, stable=9, high_watermark=9, size=0, aborted=(), lists_aborted=1)],
    )
    look = RecordLookup(BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"})))
    fetched = lambda: None if answers[0] is None else (answers[0], b"")  # noqa: E731
    monkeypatch.setattr(lookup, "fetch_once", lambda *_, **__: fetched())
    monkeypatch.setattr(lookup, "fetch_many", lambda *_, **__: {} if answers[0] is None else {("out", 0): fetched()})
    monkeypatch.setattr(lookup, "walk_batches", lambda *_: iter(()))
    monkeypatch.setattr(lookup, "describe_topics", lambda *_, **__: {})
    monkeypatch.setattr(lookup.system, "monotonic", lambda: now[0])
    said = []
    for seconds, known in ((0, 0), (1, 1), (19, 0), (30, 0), (39, 0), (50, 0)):
        now[0], answers[0] = float(seconds), answers[1] if known else None
        said.append(look.look_each([(PAIR, PLACE)])[PAIR, PLACE] if of_many else look.look(PAIR, PLACE))
    assert said == [None, Visibility.VISIBLE if of_many else Visibility.EXPIRED, None, None, None, Visibility.EXPIRED]


@pytest.mark.parametrize("of_many", [False, True])
def test_a_topic_of_many_partitions_that_is_gone(of_many: bool, monkeypatch: pytest.MonkeyPatch):
    """To look for a missing topic takes a second, and a look at each of its partitions may take minutes in all."""
    now, places = [0.0], [(PAIR, Probe("out", partition, 0)) for partition in range(150)]
    own = RecordLookup(BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"})))

    def describe_topics(*_: object, **__: object) -> dict[str, object]:
        now[0] += 1.0
        return {}

    monkeypatch.setattr(lookup, "fetch_once", lambda *_, **__: None)
    monkeypatch.setattr(lookup, "fetch_many", lambda *_, **__: {})
    monkeypatch.setattr(lookup, "describe_topics", describe_topics)
    monkeypatch.setattr(lookup.system, "monotonic", lambda: now[0])
    for _ in range(22 if of_many else 2):
        said = own.look_each(places) if of_many else {place: own.look(*place) for place in places}
    assert said == dict.fromkeys(places, Visibility.EXPIRED)


def test_a_partition_of_a_topic_that_was_made_anew_with_fewer(monkeypatch: pytest.MonkeyPatch):
    """Is gone, though others of the topic answer in between; those that are there are not."""
    now = [0.0]
    own = RecordLookup(BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"})))
    monkeypatch.setattr(lookup, "fetch_many", lambda *_, **__: {})
    monkeypatch.setattr(lookup, "describe_topics", lambda *_, **__: {"out": SimpleNamespace(partitions=1)})
    monkeypatch.setattr(lookup.system, "monotonic", lambda: now[0])
    there, gone = (PAIR, PLACE), (PAIR, Probe("out", 1, 0))
    for now[0] in (0.0, 10.0, 21.0):
        said = own.look_each([there, gone])
    assert said == {there: None, gone: Visibility.EXPIRED}


def test_a_topic_that_has_taken_the_place_of_another_one_does_not_answer_for_it(monkeypatch: pytest.MonkeyPatch):
    """Places are fetched by the topic's id, as far as it is known. A broker may not have heard of the topic yet."""
    now, asked = [0.0], []
    own = RecordLookup(BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"})))
    there = Probe("out", 1, 0, topic_id="B" * 22)
    deleted, by_name = Probe("out", 0, 0, topic_id="C" * 22), Probe("old", 0, 0)

    def fetch_many(_: object, wanted: Mapping[tuple[str, int], object], *, ids: Mapping[str, bytes], **__: object):
        asked.append((sorted(wanted), sorted(ids)))
        error = Code.UNKNOWN_TOPIC_ID if ids.get("out") == id_bytes(deleted.topic_id) else 0
        return {at: (FetchResponse(error, 0, (), 0, 9, 9), b"") for at in wanted}

    monkeypatch.setattr(lookup, "fetch_many", fetch_many)
    monkeypatch.setattr(lookup, "is_supported_by_id", lambda _: True)
    monkeypatch.setattr(lookup.system, "monotonic", lambda: now[0])
    said = []
    for now[0] in (0.0, 10.0, 21.0):
        found = own.look_each([(PAIR, probe) for probe in (there, deleted, by_name)])
        said.append([found[PAIR, probe] for probe in (there, deleted, by_name)])
    assert said == [[Visibility.VISIBLE, state, Visibility.VISIBLE] for state in (None, None, Visibility.DELETED)]
    assert asked[:3] == [([("out", 1)], ["out"]), ([("out", 0)], ["out"]), ([("old", 0)], [])]
