"""What became of a transaction, by the log at the place of its first record."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
from hypothesis import given
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
from tests.support.judges.record_batches import Batch, encode, marker, plain

CLIENT = BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"}))
PAIR, PLACE = Pair("eos-q-1-0-0", 1000, 0), Probe("out", 0, 0)
#: What the transaction wrote there.
WRITTEN = plain(0, b"row", producer=1000)
OUT_OF_RANGE = FetchResponse(Code.OFFSET_OUT_OF_RANGE, 0), b""


@contextmanager
def silent_brokers() -> Iterator[SimpleNamespace]:
    """Brokers that answer nothing, and have no topic. A test sets which requests they answer, and the time, ``now``."""
    requests = dict.fromkeys(("fetch_many", "describe_topics", "begin_offsets", "end_offsets"), lambda *_, **__: {})
    requests |= {"fetch_once": lambda *_, **__: None, "is_supported_by_id": lambda _: True}
    brokers = SimpleNamespace(**requests, now=0.0)
    with pytest.MonkeyPatch.context() as patch:
        for name in requests:
            patch.setattr(lookup, name, lambda *asked, of=name, **how: getattr(brokers, of)(*asked, **how))
        patch.setattr(lookup.system, "monotonic", lambda: brokers.now)
        yield brokers


@pytest.fixture
def brokers() -> Iterator[SimpleNamespace]:
    with silent_brokers() as brokers:
        yield brokers


def fetched(*batches: Batch, stable: int = 9, **facts: object) -> tuple[FetchResponse, bytes]:
    """The answer of a leader whose log has these batches from the place on, and ends at offset 9."""
    data = b"".join(map(encode, batches))
    return FetchResponse(0, len(data), begin=0, stable=stable, high_watermark=9, **facts), data


@pytest.mark.parametrize(
    ("pair", "answer", "says"),
    [
        (PAIR, fetched(WRITTEN), Visibility.VISIBLE),
        (PAIR, fetched(WRITTEN, aborted=((1000, 0),)), Visibility.ABORTED),
        (replace(PAIR, epoch=1), fetched(WRITTEN), Visibility.EXPIRED),
        (replace(PAIR, producer_id=1001), fetched(WRITTEN), Visibility.EXPIRED),
        (PAIR, fetched(plain(1, b"row", producer=1000)), Visibility.EXPIRED),
        (PAIR, fetched(marker(0, 1000, commit=False)), Visibility.EXPIRED),
        (PAIR, fetched(stable=0), None),
        (PAIR, fetched(stable=1), Visibility.EXPIRED),
    ],
    ids=["there", "aborted", "epoch", "producer", "later", "marker", "held back", "gone"],
)
def test_what_the_record_at_the_place_says(brokers, pair: Pair, answer: object, says: Visibility | None):
    """A marker of the same producer is no row of its transaction: in a topic that was created anew after its rows were
    written, an abort's may be there. No record is an outcome only below the stable end: a broker holds the records of
    an open transaction back."""
    brokers.fetch_once = lambda *_, **__: answer
    assert RecordLookup(CLIENT).look(pair, PLACE) is says


@pytest.mark.parametrize("begin", [0, 4])
@pytest.mark.parametrize(("waits", "says"), [(True, Visibility.ABORTED), (False, None)])
def test_an_offset_in_tiered_storage(brokers, begin: int, waits: bool, says: Visibility | None):
    """Until the broker has read it there, for which some wait only as long as the request says, it answers without
    records, and without a list; to a request for no bytes, always. ``begin``: of the log."""
    asked: list[tuple[int, bool]] = []
    nothing = fetched(lists_aborted=False)

    def fetch_once(_: object, topic: str, number: int, offset: int, *, max_wait_ms: int = 0, **__: object) -> object:
        asked.append((offset, max_wait_ms > 0))
        if offset < begin:
            return OUT_OF_RANGE
        return fetched(WRITTEN, aborted=((1000, 0),)) if waits and max_wait_ms > 0 else nothing

    brokers.fetch_once = fetch_once
    brokers.fetch_many = lambda *_, **__: {("out", 0): nothing}
    brokers.begin_offsets, brokers.end_offsets = lambda *_: {"out": {0: begin}}, lambda *_: {"out": {0: 9}}
    assert RecordLookup(CLIENT).look_each([(PAIR, PLACE)]) == {(PAIR, PLACE): says}
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
        (producer,) = (
            pair.producer_id for pair, probe in firsts if (probe.partition, probe.offset) == (number, offset)
        )
        return fetched(plain(offset, b"row", producer=producer), aborted=tuple(aborted), stable=log.stable)

    with silent_brokers() as brokers:
        brokers.fetch_many, brokers.fetch_once = fetch_many, fetch_once
        found = RecordLookup(CLIENT).look_each(places)

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


@pytest.mark.parametrize(("answers", "says"), [({}, None), ({("out", 0): OUT_OF_RANGE}, Visibility.EXPIRED)])
def test_a_place_that_cannot_be_fetched_is_looked_at_alone(brokers, answers: object, says: Visibility | None):
    """As where retention has taken it: the log may still tell of an abort. Silence is no outcome of any transaction of
    the partition."""
    brokers.fetch_many = lambda *_, **__: answers
    brokers.fetch_once = lambda _, topic, number, offset, **__: fetched() if offset >= 5 else OUT_OF_RANGE
    brokers.begin_offsets = brokers.end_offsets = lambda *_: {"out": {0: 5}}
    brokers.describe_topics = lambda *_, **__: {"out": SimpleNamespace(partitions=1)}
    places = [(PAIR, PLACE), (PAIR, Probe("out", 0, 4))]
    own = RecordLookup(CLIENT)
    for brokers.now in (0.0, MISSING_S + 1):
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
def test_an_answer_ends_what_was_missing(brokers, of_many: bool):
    """A broker that has just started does not know the topic, twice within a while, and answers in between."""
    look, answers, said = RecordLookup(CLIENT), {}, []
    brokers.fetch_many = lambda *_, **__: answers
    brokers.fetch_once = lambda *_, **__: answers.get(("out", 0))
    for brokers.now, is_known in ((0, False), (1, True), (19, False), (30, False), (39, False), (50, False)):
        answers.clear()
        answers.update({("out", 0): fetched()} if is_known else {})
        said.append(look.look_each([(PAIR, PLACE)])[PAIR, PLACE] if of_many else look.look(PAIR, PLACE))
    assert said == [None, Visibility.VISIBLE if of_many else Visibility.EXPIRED, None, None, None, Visibility.EXPIRED]


@pytest.mark.parametrize("of_many", [False, True])
def test_a_topic_of_many_partitions_that_is_gone(brokers, of_many: bool):
    """To look for a missing topic takes a second, and a look at each of its partitions may take minutes in all."""
    own, places = RecordLookup(CLIENT), [(PAIR, Probe("out", partition, 0)) for partition in range(150)]

    def describe_topics(*_: object, **__: object) -> dict[str, object]:
        brokers.now += 1.0
        return {}

    brokers.describe_topics = describe_topics
    for _ in range(22 if of_many else 2):
        said = own.look_each(places) if of_many else {place: own.look(*place) for place in places}
    assert said == dict.fromkeys(places, Visibility.EXPIRED)


def test_a_partition_of_a_topic_that_was_made_anew_with_fewer(brokers):
    """Is gone, though others of the topic answer in between; those that are there are not."""
    own = RecordLookup(CLIENT)
    brokers.describe_topics = lambda *_, **__: {"out": SimpleNamespace(partitions=1)}
    there, gone = (PAIR, PLACE), (PAIR, Probe("out", 1, 0))
    for brokers.now in (0.0, 10.0, 21.0):
        said = own.look_each([there, gone])
    assert said == {there: None, gone: Visibility.EXPIRED}


def test_a_topic_that_has_taken_the_place_of_another_one_does_not_answer_for_it(brokers):
    """Places are fetched by the topic's id, as far as it is known. A broker may not have heard of the topic yet."""
    own, asked, said = RecordLookup(CLIENT), [], []
    there = Probe("out", 1, 0, topic_id="B" * 22)
    deleted, by_name = Probe("out", 0, 0, topic_id="C" * 22), Probe("old", 0, 0)

    def fetch_many(_: object, wanted: Mapping[tuple[str, int], object], *, ids: Mapping[str, bytes], **__: object):
        asked.append((sorted(wanted), sorted(ids)))
        error = Code.UNKNOWN_TOPIC_ID if ids.get("out") == id_bytes(deleted.topic_id) else 0
        return {at: (FetchResponse(error, 0, (), 0, 9, 9), b"") for at in wanted}

    brokers.fetch_many = fetch_many
    for brokers.now in (0.0, 10.0, 21.0):
        found = own.look_each([(PAIR, probe) for probe in (there, deleted, by_name)])
        said.append([found[PAIR, probe] for probe in (there, deleted, by_name)])
    assert said == [[Visibility.VISIBLE, state, Visibility.VISIBLE] for state in (None, None, Visibility.DELETED)]
    assert asked[:3] == [([("out", 1)], ["out"]), ([("out", 0)], ["out"]), ([("old", 0)], [])]
