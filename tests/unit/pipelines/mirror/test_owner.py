"""Queries that claim the same topics, in one process that takes turns between them at every step: no row is there
twice, and none is left out, whoever starts, decides, is killed or starts again meanwhile."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.errors import CheckpointError, EosError, KafkaError, Superseded
from spark_eos.kafka.admin.topics import Topic
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.pipelines.mirror import owner
from spark_eos.pipelines.mirror.offset_map import METADATA
from spark_eos.pipelines.mirror.owner import Claim, Followed, Ownership, from_record, key_of, read_claims, to_record
from spark_eos.pipelines.mirror.plan import MirrorClients, MirrorPlan, Targets
from spark_eos.protocol.commands import SettledState
from spark_eos.protocol.head import Decision
from tests.support.models.dying_driver import Killed
from tests.support.models.map_logs import MAP, MapLog

TOPICS = ("a", "b", "c")


def plan_of(query: str) -> MirrorPlan:
    reads = stream_options({"kafka.bootstrap.servers": "here:9092", "subscribe": "a"})
    writes = sink_options({"kafka.bootstrap.servers": "there:9092", "checkpointLocation": f"/{query}"})
    return MirrorPlan(reads, writes, None, "here", Targets("p."), "there")


CLIENTS = MirrorClients.for_plan(plan_of(""))


def ownership(query: str) -> Ownership:
    return Ownership(plan_of(query), CLIENTS)


@dataclass
class Actor:
    """A mirror: where its checkpoint is in each topic, and whether a process of it holds these now."""

    query: str
    topics: tuple[str, ...]
    at: dict[str, int] = field(default_factory=dict)
    logged: bool = False
    decided: int = 0
    heir: str | None = None
    ended: bool = False
    holds: bool = False
    inherits: bool = False

    def settled_state(self) -> SettledState:
        decision = Decision(self.decided, 0, 1, 0, 0, None, ()) if self.decided else None
        return SettledState(decision, self.heir is not None, self.heir or "")


class Site:
    """The target: its map's log, the ledger of each query, and up to where each topic was mirrored. ``between`` is
    called before whatever is visible to others. ``hidden``: what an open transaction hides of the map, until somebody
    waits for its end; ``reads``: how often the claims were read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.log: list[tuple[int, bytes, bytes | None]] = []
        self.ends = dict.fromkeys(TOPICS, 0)
        self.actors: dict[str, Actor] = {}
        self.between: Callable[[], None] = lambda: None
        self.check = self._check
        self.hidden: list[str] = []
        self.reads = 0
        self.stops: list[str] = []
        put = {
            "read_claims": lambda *_: self._step(self.claims),
            "write_claims": lambda _kafka, _map, some: self._step(lambda: self._write(map(to_record, some))),
            "remove_claims": lambda _k, _m, some: self._step(lambda: self._write((key_of(c), None) for c in some)),
            "make_map": lambda *_: None,
            "make_ledger": lambda *_: 8,
            "held_partition": lambda *_: self.hidden.clear(),
            "QueryOperator": SimpleNamespace(
                with_ledger=lambda _kafka, _ledger, _prefix, query: _Operator(self, query)
            ),
            "check_positions": lambda *asked: self.check(*asked),
            "Checkpoint": lambda location, _: SimpleNamespace(query_id=lambda: location[1:] or None),
            "describe_topics": lambda _, names, **__: {n: Topic(f"{n}-id", 1, internal=False) for n in names},
            "retrying": lambda _: iter(range(30)),
        }
        for name, fake in put.items():
            patch.setattr(owner, name, fake)
        patch.setattr(owner.failpoints, "reach", lambda _: self.between())

    def claims(self) -> list[Claim]:
        self.reads += 1
        newest = {key: (at, value) for at, key, value in self.log}
        found = [from_record(at, key, value) for key, (at, value) in newest.items() if value is not None]
        return sorted(found, key=lambda claim: claim.at)

    def owners(self, topic: str) -> list[str]:
        return [claim.query for claim in self.claims() if claim.source == topic and not claim.released]

    def start(self, actor: Actor) -> None:
        """A new process of it: where it begins is where its checkpoint is, or where the target ends if that is new."""
        self.actors[actor.query] = actor
        actor.holds = False
        ids = {topic: f"{topic}-id" for topic in actor.topics}
        at = {topic: {0: actor.at.setdefault(topic, self.ends[topic])} for topic in actor.topics}
        ownership(actor.query).hold(Followed(ids, at, () if actor.logged else actor.topics))
        actor.holds, actor.logged = True, True

    def decide(self, actor: Actor) -> None:
        """A micro-batch, if its ledger lets it. Its rows are those from where its checkpoint is."""
        if not actor.holds or actor.heir is not None:
            return
        for topic in actor.topics:
            assert actor.at[topic] == self.ends[topic], f"{actor.query}: {topic} is at {self.ends[topic]}"
            self.ends[topic] = actor.at[topic] = actor.at[topic] + 1
        actor.decided += 1

    def _step(self, does: Callable[[], Any]) -> Any:
        self.between()
        found = does()
        self.between()
        return found

    def _write(self, records: Iterator[tuple[bytes, bytes | None]]) -> None:
        self.log += [(len(self.log) + n, key, value) for n, (key, value) in enumerate(records)]

    def _check(self, _plan: Any, _clients: Any, ids: dict[str, str], at: dict[str, dict[int, int]], _new: Any) -> None:
        self.between()
        for topic in ids:
            if at[topic][0] != self.ends[topic]:
                raise KafkaError("EOS_MIRROR_BEGINS_ELSEWHERE", topic, hint="")


@dataclass
class _Operator:
    """Of a query, by its name."""

    site: Site
    query: str

    @property
    def actor(self) -> Actor:
        return self.site.actors[self.query]

    def settled_state(self) -> SettledState:
        return self.site._step(lambda: self.actor.settled_state())

    def retire(self, seen: Decision | None, successor: str, _checkpoint: str) -> bool:
        self.site.between()
        if self.actor.settled_state().decision != seen:
            return False
        self.actor.heir, self.actor.ended = self.actor.heir or successor, True
        self.site.between()
        return True

    def check_may_start(self) -> None:
        if self.actor.heir is not None:
            raise Superseded("EOS_QUERY_RETIRED", self.query, hint="")


@pytest.fixture
def site(monkeypatch) -> Site:
    return Site(monkeypatch)


def play(seed: int, patch: pytest.MonkeyPatch, mistake: Callable[[pytest.MonkeyPatch], None] | None = None) -> Site:
    """Five mirrors of some of the topics, which start, decide and are killed in the midst of one another's steps."""
    site = Site(patch)
    if mistake is not None:
        mistake(patch)
    site.between = _Others(random.Random(seed), site).act
    for _ in range(60):
        with contextlib.suppress(Killed):
            site.between()
    return site


class _Others:
    """What happens between two steps of one of the mirrors: others take steps, and so on; or it is killed."""

    def __init__(self, chance: random.Random, site: Site) -> None:
        self.chance, self.site, self.deep = chance, site, 0
        some = [tuple(sorted(chance.sample(TOPICS, chance.choice((1, 1, 2, 3))))) for _ in range(5)]
        self.actors = [Actor(f"q{n}", topics) for n, topics in enumerate(some)]

    def act(self) -> None:
        if self.deep >= 3 or self.chance.random() < 0.6:
            return
        self.deep += 1
        try:
            self._step(self.chance.choice(self.actors))
        except EosError as error:
            self.site.stops.append(error.condition)
        except Killed:
            pass
        finally:
            self.deep -= 1
        if self.deep and self.chance.random() < 0.05:
            raise Killed

    def _step(self, actor: Actor) -> None:
        if self.chance.random() < 0.5:
            self.site.decide(actor)
        elif self.chance.random() < 0.8:
            self.site.start(actor)
        else:
            actor.holds = False  # killed


SEEDS = 150


def test_whoever_starts_in_the_midst_of_others():
    """Each row is mirrored once, and each stop has a name; often enough, a mirror is taken over, and one is refused."""
    stops: set[str] = set()
    taken = 0
    for seed in range(SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            site = play(seed, patch)
        stops |= set(site.stops)
        taken += any(actor.heir is not None for actor in site.actors.values())
    assert stops == {"EOS_MIRROR_OWNED", "EOS_MIRROR_BEGINS_ELSEWHERE", "EOS_QUERY_RETIRED"}
    assert taken > SEEDS // 4


def _without_claims(patch: pytest.MonkeyPatch) -> None:
    """Nobody is looked for."""
    patch.setattr(owner._Takeover, "_earlier_claims", lambda self: {})


def _checked_before_only(patch: pytest.MonkeyPatch) -> None:
    """The owner is retired whatever it has decided since its position was read, and nobody looks again."""
    before = _Operator.retire

    def retire(self: _Operator, _seen: Decision | None, heir: str, checkpoint: str) -> bool:
        return before(self, self.settled_state().decision, heir, checkpoint)

    patch.setattr(_Operator, "retire", retire)
    patch.setattr(owner._Takeover, "_check_again", lambda self, names: None)


def _not_fenced(patch: pytest.MonkeyPatch) -> None:
    """The owner's claims are removed, and its ledger is left alone."""
    patch.setattr(_Operator, "retire", lambda *_: True)


@pytest.mark.parametrize("mistake", [_without_claims, _checked_before_only, _not_fenced])
def test_known_mistakes_are_seen(mistake):
    """Each is put back, and rows are there twice, or left out."""
    for seed in range(2 * SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            try:
                play(seed, patch, mistake)
            except AssertionError:
                break
    else:
        pytest.fail("no schedule sees it")


def test_a_part_of_a_mirrors_topics_is_not_taken(site):
    """The others would have no mirror any more; all of them, and more, are."""
    both, one, more = Actor("q1", ("a", "b")), Actor("q2", ("b",)), Actor("q3", TOPICS)
    site.start(both)
    site.decide(both)
    with pytest.raises(KafkaError, match="EOS_MIRROR_OWNED") as caught:
        site.start(one)
    assert "does not mirror a" in caught.value.message
    assert "query q1 (since " in caught.value.message
    assert site.owners("b") == ["q1"]
    site.decide(both)
    site.start(more)
    assert both.heir == "q3"
    assert [site.owners(topic) for topic in TOPICS] == [["q3"]] * 3


def test_a_topic_that_was_taken_off(site):
    """It is given up, and another mirror may have it; put back, it is refused, as the offset log knows the topic."""
    first, second = Actor("q1", ("a", "b")), Actor("q2", ("b",))
    site.start(first)
    site.decide(first)
    owner = ownership("q1")
    owner.hold(Followed({"a": "a-id"}, {"a": {0: 1}}))
    owner.release({"a"})
    assert site.owners("b") == []
    site.start(second)
    site.decide(second)
    with pytest.raises(KafkaError, match="EOS_MIRROR_OWNED"):
        owner.hold(Followed({"a": "a-id", "b": "b-id"}, {"a": {0: 1}, "b": {0: 1}}))
    second.heir = "nobody"
    with pytest.raises(KafkaError, match="EOS_MIRROR_BEGINS_ELSEWHERE"):
        owner.hold(Followed({"a": "a-id", "b": "b-id"}, {"a": {0: 1}, "b": {0: 1}}))
    assert site.owners("b") == ["q2"]
    owner.hold(Followed({"a": "a-id", "b": "b-id"}, {"a": {0: 1}, "b": {0: 2}}))
    assert site.owners("b") == ["q1"]


def test_a_replay_goes_on_in_the_place_of_another_query(site):
    """It begins before the target's end, as the operator has wanted; a checkpoint that has nothing to do with it may
    not."""
    old = Actor("q1", ("a",))
    site.start(old)
    site.decide(old)
    old.heir = "q2"
    with pytest.raises(KafkaError, match="EOS_MIRROR_BEGINS_ELSEWHERE"):
        site.start(Actor("q3", ("a",), {"a": 0}, logged=True))
    site.start(Actor("q2", ("a",), {"a": 0}, logged=True))
    assert site.owners("a") == ["q2"]


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_an_owner_that_somebody_else_has_retired(site, looks):
    """Who has died over it, before the claims were removed, and maybe before what it has open was ended. Where the
    owner has ended is looked up once no open transaction hides a part of the map, also where there is nobody left to
    retire. ``looks``: of the new owner, before that."""
    old, new = Actor("q1", ("a",)), Actor("q2", ("a",))
    site.start(old)
    new.at["a"] = 0
    site.hidden, looked, check = ["the end"], [0], site.check

    def somebody_else() -> None:
        if looked[0] == looks and old.heir is None:
            site.decide(old)
            old.heir = "q3"

    def hiding(*asked: Any) -> None:
        looked[0] += 1
        somebody_else()
        if not site.hidden:
            check(*asked)

    site.check = hiding
    somebody_else()
    with pytest.raises(KafkaError, match="EOS_MIRROR_BEGINS_ELSEWHERE"):
        site.start(new)
    assert site.owners("a") == ["q1", "q2"]
    assert old.ended


def test_a_micro_batch_that_is_logged_already(site):
    """As of a mirror that was stopped before there were claims: it claims, unless somebody else has."""
    site.actors |= {"q1": Actor("q1", ()), "q2": Actor("q2", ())}
    ownership("q1").hold(Followed({"a": "a-id"}))
    assert site.owners("a") == ["q1"]
    with pytest.raises(KafkaError, match="EOS_MIRROR_OWNED"):
        ownership("q2").hold(Followed({"a": "a-id"}))
    assert site.owners("a") == ["q1"]


def test_nothing_is_asked_for_what_is_held(site):
    """Micro-batch by micro-batch."""
    actor = site.actors["q1"] = Actor("q1", ("a",))
    own = ownership("q1")
    own.hold(Followed({"a": "a-id"}, {"a": {0: 0}}, ("a",)))
    reads = site.reads
    own.hold(Followed({"a": "a-id"}, {"a": {0: actor.decided}}))
    assert site.reads == reads


def test_a_checkpoint_in_which_python_finds_no_query(site):
    """Two mirrors could not be told apart."""
    with pytest.raises(CheckpointError, match="EOS_MIRROR_NO_QUERY"):
        ownership("").hold(Followed({"a": "a-id"}))


def test_claims_behind_an_open_transaction(clusters):
    """As in a map of one partition: who has claimed is not known until it has ended."""
    claim = Claim("q", "a-id", "p.a", "a", "ledger", "eos", "/c", "host", 17)
    clusters["there"].topics[MAP] = log = MapLog()
    log.unstable[METADATA] = 1
    clusters.at(50.0, lambda: log.put(METADATA, to_record(claim)))
    assert read_claims(clusters["there"], MAP) == [claim]
    log.unstable[METADATA] = 1
    with pytest.raises(KafkaError, match="EOS_MIRROR_MAP_HELD"):
        read_claims(clusters["there"], MAP)


def test_a_claim_is_read_as_it_was_written():
    """Also by a version that has added something; it is no entry of the map, and no origin."""
    claim = Claim("q", "a-id", "p.a", "a", "ledger", "eos", "/c", "host", 17, released=True, at=3)
    key, value = to_record(claim)
    assert from_record(3, key, value) == claim
    assert from_record(3, key, value[:-1] + b', "more": 1}') == claim
    assert not key.startswith(b'{"origin":')
    assert b',"first":' not in key
