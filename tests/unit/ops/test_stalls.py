"""Commands of which one stalls, before each of its steps in turn, while somebody else runs the same command to its end
and the query goes on for some micro-batches; then it wakes up. And those that die there.

A step is a request to a broker, or an operation on a file: brokers are simulated, files are real.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.checkpoint import files as checkpoints
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import Store, open_store
from spark_eos.errors import EosError
from spark_eos.ops import checkpoint_files, drop_planned
from spark_eos.ops import recover as recovery
from spark_eos.ops.heads import SinkHead
from spark_eos.ops.replay import Replay
from spark_eos.ops.replay_plan import ReplayPlan, ReplayRequest, plan
from spark_eos.protocol import commands
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import Head, Unfinished
from spark_eos.protocol.head_codec import decode
from spark_eos.protocol.names import query_of_replay
from spark_eos.protocol.ports import Ports
from tests.simulation import by_hand
from tests.simulation.by_hand import OUTPUT, Brokers
from tests.simulation.ledger import PREFIX, QUERY
from tests.simulation.ledger import ports as simulated

SETTINGS = HadoopSettings()
#: What a command that has stalled may end with; anything else is no answer to an operator.
NAMED = {
    "EOS_COMMAND_OVERTAKEN",
    "EOS_DROP_REFUSED",
    "EOS_REPLAY_REFUSED",
}


class Killed(BaseException):
    """The command, where it stands."""


class Steps:
    """Counts the steps of the command that is watched; before the n-th one, ``happens`` happens."""

    def __init__(self, at: int, happens: Callable[[], None]) -> None:
        self.taken, self.watching = 0, False
        self._at, self._happens = at, happens

    def step(self) -> None:
        if not self.watching:
            return
        self.taken += 1
        if self.taken == self._at:
            self.watching = False
            self._happens()
            self.watching = True

    def watched(self, of: Any, *results: str) -> Any:
        """The same object, each call of which is a step; of these methods, so is what they return."""

        def call(name: str) -> Any:
            method = getattr(of, name)
            if not callable(method):
                return method

            def step(*args: Any, **more: Any) -> Any:
                self.step()
                found = method(*args, **more)
                return self.watched(found) if name in results else found

            return step

        return _Proxy(call)


class _Proxy:
    def __init__(self, call: Callable[[str], Any]) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return self._call(name)


class Query:
    """A query with a checkpoint, of which Spark plans and commits micro-batches, a row in each."""

    def __init__(self, brokers: Brokers, folder: Path, steps: Steps, query: str = QUERY) -> None:
        self.brokers, self.folder, self.steps, self.id = brokers, folder, steps, query
        self.runs, self.ends = 0, 0
        self.written: list[tuple[int, int]] = []
        self.head: Head | None = None

    @property
    def cluster(self) -> Any:
        """Of an operator."""
        return SimpleNamespace(
            kafka=None,
            ledger="ledger",
            prefix=None,
            ports=lambda query, group=None, prefix=None: self.ports(query),
            head=lambda query: self.ports(query).ledger.read(),
            prefix_of=lambda query: PREFIX,
            heads=SimpleNamespace(newest_of_all=dict),
        )

    def ports(self, query: str) -> Ports:
        own, watched = simulated(self.brokers.world, self.brokers.cluster, query=query), self.steps.watched
        return replace(
            own, ledger=watched(own.ledger, "take"), coordinator=watched(own.coordinator), data=watched(own.data)
        )

    def log(self, name: str, text: str) -> None:
        """A file of Spark's, with its checksum."""
        for path, what in ((Path(name), text), (Path(name).with_name(f".{Path(name).name}.crc"), "crc")):
            (self.folder / path.parent).mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_text(what)

    def plan(self, batch: int) -> None:
        self.ends += 1
        self.log(f"offsets/{batch}", f'v1\n{{"batchTimestampMs":{self.ends}}}\n{{"in":{{"0":{self.ends}}}}}')

    def start(self, batch: int) -> None:
        self.runs += 1
        self.head = self.brokers.open(f"{self.id} r{self.runs}", batch, simulated_of(self))

    def goes_on(self, first: int, last: int) -> None:
        """A run that does these micro-batches."""
        self.start(first)
        for batch in range(first, last + 1):
            self.does(batch)

    def does(self, batch: int) -> None:
        assert self.head is not None
        if not (self.folder / "offsets" / str(batch)).exists():
            self.plan(batch)
        own = simulated_of(self)
        commit(own, prepared(self, self.head, batch))
        self.written.append((self.runs, batch))
        self.log(f"commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')

    def files(self) -> dict[str, str]:
        """What Spark has in the logs."""
        found = [path for log in ("offsets", "commits") for path in (self.folder / log).glob("*[!w]")]  # no drafts
        return {str(path.relative_to(self.folder)): path.read_text() for path in found}


def simulated_of(query: Query) -> Ports:
    return simulated(query.brokers.world, query.brokers.cluster, query=query.id)


def prepared(query: Query, head: Head, batch: int) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.simulation.by_hand.QUERY", query.id)
        return query.brokers.prepared(head, batch)


def before(query: Query, done: int) -> None:
    """So many micro-batches are done, and another one is planned and has something open, when its driver dies."""
    (query.folder / "metadata").write_text(json.dumps({"id": query.id}))
    query.goes_on(0, done - 1)
    assert query.head is not None
    query.plan(done)
    prepared(query, query.head, done)


def drop(query: Query) -> None:
    planned = drop_planned.plan(Checkpoint(str(query.folder)), query.cluster)
    drop_planned.drop(planned, query.cluster, SETTINGS)


def drop_first(query: Query) -> None:
    """The offset log is empty afterwards."""
    drop(query)


def new_of(query: Query) -> str:
    return str(query.folder.with_name("new"))


def replay(query: Query) -> None:
    where, to, cluster = str(query.folder), new_of(query), query.cluster
    new = query_of_replay(query.id, to)
    head = cluster.head(new)
    if head is not None:
        planned = plan(Checkpoint(where), cluster, ReplayRequest(to))
    else:
        texts = [(query.folder / log / "0").read_text().splitlines() for log in ("offsets", "commits")]
        unfinished = Unfinished(query.id, where, to, 0, tuple(texts[0][2:]), tuple(texts[0][:2]), tuple(texts[1]))
        planned = ReplayPlan(new, unfinished, 1, [SinkHead(query.id, query.id, None, cluster.head(query.id))])
    Replay(cluster, planned, SETTINGS).run()


def abort(query: Query) -> None:
    _ended(query, recovery.Steps.ABORT)


def recover(query: Query) -> None:
    _ended(query, recovery.Steps.ALL)


def settle(query: Query) -> None:
    _ended(query, recovery.Steps.SETTLE)


def _ended(query: Query, part: recovery.Steps) -> None:
    head = query.cluster.head(query.id)
    recovery.recovered(query.cluster, recovery.SinkPlan(query.id, None, head, part), recovery.Wanted(part, yes=True))


def whose(heads: list[bytes]) -> list[object]:
    """Whose each head is, and what it decides; that a transaction is committed may be noted by anybody."""
    found = []
    for head in map(decode, heads):
        decision = head.decision
        found.append((head.run, head.generation, head.marks, None if decision is None else decision.batch))
    return list(dict.fromkeys(found))


def goes_on_at(batch: int) -> Callable[[Query], Query]:
    def after(query: Query) -> Query:
        query.goes_on(batch, batch + 1)
        return query

    return after


def in_the_new_one(query: Query) -> Query:
    new = Query(query.brokers, Path(new_of(query)), query.steps, query_of_replay(query.id, new_of(query)))
    new.ends = 10
    new.goes_on(1, 2)
    return new


COMMANDS = {
    drop: goes_on_at(2),
    drop_first: goes_on_at(0),
    replay: in_the_new_one,
    abort: goes_on_at(2),
    recover: goes_on_at(2),
    settle: goes_on_at(2),
}


class Play:
    """A command that stalls, or dies, before its n-th step, and what is so afterwards. ``taken``: its steps; ``after``:
    the query that has gone on meanwhile, its files, and all heads by then."""

    def __init__(self, command: Callable[[Query], None], folder: Path, at: int, *, dies: bool) -> None:
        folder.mkdir(parents=True)
        self.command, self.dies, self.folder = command, dies, folder
        self.steps = Steps(at, self._happens)
        self.after: tuple[Query, dict[str, str], list[object]] | None = None

    def _happens(self) -> None:
        if self.dies:
            raise Killed
        self._another()

    def _another(self) -> None:
        self._run(self.command)
        goes_on = COMMANDS[self.command](self.query)
        self.after = goes_on, goes_on.files(), whose(self.brokers.heads)

    def _run(self, command: Callable[[Query], None]) -> None:
        try:
            command(self.query)
        except EosError as error:
            assert error.condition in NAMED, error

    def play(self, brokers: Brokers) -> None:
        self.brokers, self.query = brokers, Query(brokers, self.folder, self.steps)
        before(self.query, 0 if self.command is drop_first else 2)
        self.steps.watching = True
        try:
            self._run(self.command)
        except Killed:
            self.steps.watching = False
            self._another()
        self.steps.watching = False
        if self.after is not None:
            self._check(*self.after)

    def _check(self, goes_on: Query, files: dict[str, str], heads: list[object]) -> None:
        assert goes_on.files() == files
        assert not [*self.folder.glob("*/.moving-*")]
        assert whose(self.brokers.heads) == heads
        goes_on.does(6)
        written = {id(query): len(query.written) for query in (self.query, goes_on)}
        seen = [r for r in self.brokers.cluster.log(OUTPUT).records if r.visible and not r.control]
        assert len(seen) == sum(written.values())


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Play]:
    numbers = itertools.count()

    def play(command: Callable[[Query], None], at: int, *, dies: bool) -> Play:
        found = Play(command, tmp_path / str(next(numbers)) / "checkpoint", at, dies=dies)

        def watched_store(location: str, settings: HadoopSettings) -> Store:
            store = open_store(location, settings)
            return replace(store, files=found.steps.watched(store.files))

        for module in (checkpoint_files, checkpoints):
            monkeypatch.setattr(module, "open_store", watched_store)
        monkeypatch.setattr(recovery, "find", lambda *_: [])
        by_hand.play(found.play)
        return found

    return play


@pytest.mark.parametrize("dies", [False, True], ids=["stalls", "dies"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_a_command_that_stalls_or_dies_at_any_step(command, dies, play):
    """It either is done before the other one begins, or stops with a named error; it changes no file and no head of the
    query that has gone on, whose run continues."""
    steps = play(command, 10_000, dies=False).steps.taken
    assert steps > 5
    for at in range(2, steps + 1):  # before the first one, it has judged nothing
        assert play(command, at, dies=dies).after is not None


def _unfenced(patch: pytest.MonkeyPatch) -> None:
    """A command goes on from where it was, whatever was published since."""
    patch.setattr(commands, "check_not_overtaken", lambda head, judged: None)


def _folders_left(patch: pytest.MonkeyPatch) -> None:
    """Each file is looked at right before it is moved, which is not enough."""
    patch.setattr(checkpoint_files.DroppedFiles, "_close_earlier", lambda self: None)


@pytest.mark.parametrize("mistake", [_unfenced, _folders_left])
def test_known_mistakes_are_seen(mistake, play, monkeypatch):
    """Each is put back, and a stall at some step shows what it would cost."""
    mistake(monkeypatch)
    for at in range(2, 200):
        try:
            found = play(drop, at, dies=False)
        except AssertionError:
            return
        if found.after is None:
            break
    pytest.fail("no stall shows it")
