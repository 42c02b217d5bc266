"""Mistakes of whoever reads and writes the ledger, as patches that put them back."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from spark_eos.ledger.reader import LedgerReader
from spark_eos.protocol import commit as commit_module
from spark_eos.protocol import open as open_module
from spark_eos.protocol import take as take_module
from spark_eos.protocol import verify as verify_module
from spark_eos.protocol.head_codec import decode
from spark_eos.protocol.names import first_names
from spark_eos.protocol.open import NewRun
from spark_eos.protocol.ports import Description, Ports

from . import client, driver, ledger_log
from . import task as tasks
from .breaking import instead_of
from .codes import OK
from .ledger import PREFIX, QUERY, SimulatedCoordinator
from .world import Reply


@instead_of(LedgerReader, "_update")
def half_a_search_is_kept(_: Any, self: Any, partition: int) -> None:
    """A search that fails has moved the reader on: the next one serves what was found until then."""
    end = self._end(partition)
    position = self._read_to.get(partition, 0)
    self._read_to[partition] = self._least_end[partition] = end
    while position < end:
        fetched = None
        for _ in self._log.retrying():
            fetched = self._log.fetch(partition, position)
            if fetched is not None and fetched.after > position:
                break
        else:
            raise self._held(partition)
        position = fetched.after
        for offset, key, value in fetched.rows:
            if key == self.query.encode() and offset < end and value is not None:
                self._heads[partition] = decode(value)


def published_on_whatever_was_read(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether there is a head between the one that was read and the one that is published."""
    patch.setattr(LedgerReader, "follows", lambda self, partition, offset: True)


@instead_of(LedgerReader, "_end", published_on_whatever_was_read)
def whatever_end_is_told(_: Any, self: Any, partition: int) -> int:
    """An end below what this process has seen or published is believed."""
    return self._log.end(partition)


@instead_of(ledger_log.SimulatedLog, "_end", published_on_whatever_was_read)
def the_end_by_fetch(_: Any, self: Any, place: Any) -> Reply:
    """The high watermark that a new leader knows, for which a Fetch does not wait."""
    leaders = self._cluster.leaders
    code = leaders.code(place)
    return Reply(code) if code is not None else Reply(OK, leaders.watermark(place, self._cluster.log(place)))


def only_the_present_partition(patch: pytest.MonkeyPatch) -> None:
    """The head is looked for where the query's id leads to today."""
    patch.setattr(ledger_log.SimulatedLog, "partitions", lambda self: 1)


@instead_of(ledger_log.SimulatedLog, "partitions")
def only_the_partitions_known(partitions: Any, self: Any) -> int:
    """As many as there were when the process looked first."""
    if not hasattr(self, "known"):
        self.known = partitions(self)
    return self.known


def first_head_not_looked_for_by_writing(patch: pytest.MonkeyPatch) -> None:
    """Whoever reads of no head in any partition writes the first one to its own alone."""
    patch.setattr(LedgerReader, "elsewhere", lambda self: [])


def a_new_ledger_for_the_first_micro_batch(patch: pytest.MonkeyPatch) -> None:
    """Where there is no head, there never was one."""
    patch.setattr(open_module, "was_published", lambda *_: False)


@instead_of(take_module, "_newer_by")
def own_id_not_asked(newer_by: Any, found: Any, head: Any) -> int | None:
    """Whoever takes the ledger does not ask what was committed last under the ledger's own id."""
    return 0 if newer_by(found, head) == 0 else None


@instead_of(take_module, "is_outrun", own_id_not_asked)
def newest_head_believed(*_: Any) -> bool:
    """Whatever head is the newest one now is gone on from: nobody asks whether there was a newer one."""
    return False


def _is_committed(found: Description) -> bool:
    return found.state.commits


@instead_of(open_module, "was_published")
def _traces_of_commits_only(_: Any, own: Ports) -> bool:
    return any(map(_is_committed, own.coordinator.known()))


@instead_of(LedgerReader, "check_taken", newest_head_believed, _traces_of_commits_only)
def taken_as_the_ledger_that_was_read(*_: Any) -> None:
    """Nobody who takes the ledger asks whether it is another one by now, or whether there was a newer head. If it is as
    long as the old one was, the old one's head is gone on from; if a run could begin anew in it, as whatever has not
    committed leaves no trace."""


@instead_of(ledger_log.SimulatedLog, "topic_id", newest_head_believed, _traces_of_commits_only)
def taken_as_the_coordinator_knows_it(topic_id: Any, self: Any, known_to: object = None) -> str:
    """The ledger's leader is not asked, and the coordinator may not have heard of a new topic."""
    return topic_id(self)


@instead_of(SimulatedCoordinator, "known")
def traces_of_the_first_run_only(_: Any, self: Any) -> Any:
    """Of the ledger, whose id a later run may have taken since, and of the first run's tasks."""
    return self.describe(first_names(PREFIX, QUERY)).values()


def nobody_looks_back(patch: pytest.MonkeyPatch) -> None:
    """What the coordinator has committed is taken for visible, unless the transaction, or its end, was late."""
    for module in (commit_module, driver, verify_module):
        patch.setattr(module, "verify_visible", lambda *_, **__: {})


def head_believed_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the end of a query looks back at what the newest head names that is left."""
    patch.setattr(verify_module, "_head_at_end", lambda own, done: own.ledger.read())


@instead_of(commit_module, "settle", nobody_looks_back)
def complete_before_it_is_committed(*_: Any, **__: Any) -> dict[Any, Any]:
    """A batch write's decision loses its transactions as soon as it is made."""
    return {}


@instead_of(client.Producer, "send_offsets")
def offsets_as_well_as_it_goes(send_offsets: Any, self: Any, *what: Any) -> None:
    """An error of TxnOffsetCommit does not keep the decision from being published."""
    with contextlib.suppress(client.Refused):
        send_offsets(self, *what)


@instead_of(tasks, "open_run")
def begin_at_whichever_micro_batch(open_run: Any, own: Any, run: NewRun) -> Any:
    """``ledger.begin`` is a switch."""
    return open_run(own, run if run.begin_at is None else replace(run, begin_at=run.batch))


def end_without_a_head_believed(patch: pytest.MonkeyPatch) -> None:
    """At the end of a run that had nothing to do, a query without a head has never had one."""
    patch.setattr(verify_module, "was_published", lambda _: False)
