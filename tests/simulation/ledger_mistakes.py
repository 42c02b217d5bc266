"""Mistakes of whoever reads and writes the ledger, as patches that put them back."""

from __future__ import annotations

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
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import Description

from . import client, driver, ledger_log
from . import task as tasks
from .codes import OK
from .ledger import PREFIX, QUERY, SimulatedCoordinator
from .world import Reply


def half_a_search_is_kept(patch: pytest.MonkeyPatch) -> None:
    """A search that fails has moved the reader on: the next one serves what was found until then."""

    def update(self: Any, partition: int) -> None:
        end = self._end(partition)
        start = self._read_to.get(partition, 0)
        self._read_to[partition] = self._least_end[partition] = end
        position = start
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

    patch.setattr(LedgerReader, "_update", update)


def whatever_end_is_told(patch: pytest.MonkeyPatch) -> None:
    """An end below what this process has seen or published is believed."""
    patch.setattr(LedgerReader, "_end", lambda self, partition: self._log.end(partition))
    published_on_whatever_was_read(patch)


def published_on_whatever_was_read(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether there is a head between the one that was read and the one that is published."""
    patch.setattr(LedgerReader, "follows", lambda self, partition, offset: True)


def the_end_by_fetch(patch: pytest.MonkeyPatch) -> None:
    """The high watermark that a new leader knows, for which a Fetch does not wait."""

    def end(self: Any, place: Any) -> Reply:
        leaders = self._cluster.leaders
        code = leaders.code(place)
        return Reply(code) if code is not None else Reply(OK, leaders.watermark(place, self._cluster.log(place)))

    patch.setattr(ledger_log.SimulatedLog, "_end", end)
    published_on_whatever_was_read(patch)


def only_the_present_partition(patch: pytest.MonkeyPatch) -> None:
    """The head is looked for where the query's id leads to today."""
    patch.setattr(ledger_log.SimulatedLog, "partitions", lambda self: 1)


def only_the_partitions_known(patch: pytest.MonkeyPatch) -> None:
    """As many as there were when the process looked first."""
    asked = ledger_log.SimulatedLog.partitions

    def once(self: Any) -> int:
        if not hasattr(self, "known"):
            self.known = asked(self)
        return int(self.known)

    patch.setattr(ledger_log.SimulatedLog, "partitions", once)


def a_new_ledger_for_the_first_micro_batch(patch: pytest.MonkeyPatch) -> None:
    """Where there is no head, there never was one."""
    patch.setattr(open_module, "was_published", lambda *_: False)


def newest_head_believed(patch: pytest.MonkeyPatch) -> None:
    """Whatever head is the newest one now is gone on from: nobody asks whether there was a newer one."""
    patch.setattr(take_module, "is_outrun", lambda *_: False)
    own_id_not_asked(patch)


def own_id_not_asked(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes the ledger does not ask what was committed last under the ledger's own id."""
    newer_by = take_module._newer_by
    patch.setattr(take_module, "_newer_by", lambda found, head: 0 if newer_by(found, head) == 0 else None)


def taken_as_the_ledger_that_was_read(patch: pytest.MonkeyPatch) -> None:
    """Nobody who takes the ledger asks whether it is another one by now, or whether there was a newer head. If it is as
    long as the old one was, the old one's head is gone on from; if a run could begin anew in it, as whatever has not
    committed leaves no trace."""
    patch.setattr(LedgerReader, "check_taken", lambda self, taken_by: None)
    newest_head_believed(patch)
    patch.setattr(open_module, "was_published", lambda own: any(map(_is_committed, own.coordinator.known())))


def _is_committed(found: Description) -> bool:
    return found.state.commits


def taken_as_the_coordinator_knows_it(patch: pytest.MonkeyPatch) -> None:
    """The ledger's leader is not asked, and the coordinator may not have heard of a new topic."""
    topic_id = ledger_log.SimulatedLog.topic_id
    patch.setattr(ledger_log.SimulatedLog, "topic_id", lambda self, known_to=None: topic_id(self))
    newest_head_believed(patch)
    patch.setattr(open_module, "was_published", lambda own: any(map(_is_committed, own.coordinator.known())))


def traces_of_the_first_run_only(patch: pytest.MonkeyPatch) -> None:
    """Of the ledger, whose id a later run may have taken since, and of the first run's tasks."""

    def known(self: Any) -> Any:
        return self.describe(first_names(PREFIX, QUERY)).values()

    patch.setattr(SimulatedCoordinator, "known", known)


def nobody_looks_back(patch: pytest.MonkeyPatch) -> None:
    """What the coordinator has committed is taken for visible, unless the transaction, or its end, was late."""
    for module in (commit_module, driver, verify_module):
        patch.setattr(module, "verify_visible", lambda *_, **__: {})


def head_believed_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the end of a query looks back at what the newest head names that is left."""
    patch.setattr(verify_module, "_head_at_end", lambda own, done: own.ledger.read())


def complete_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    """A batch write's decision loses its transactions as soon as it is made."""
    patch.setattr(commit_module, "settle", lambda *_, **__: {})
    nobody_looks_back(patch)


def offsets_as_well_as_it_goes(patch: pytest.MonkeyPatch) -> None:
    """An error of TxnOffsetCommit does not keep the decision from being published."""
    send = client.Producer.send_offsets

    def ignoring(self: Any, *what: Any) -> None:
        try:
            send(self, *what)
        except client.Refused:
            return

    patch.setattr(client.Producer, "send_offsets", ignoring)


def begin_at_whichever_micro_batch(patch: pytest.MonkeyPatch) -> None:
    """``ledger.begin`` is a switch."""

    def opened(own: Any, run: NewRun) -> Any:
        return open_run(own, run if run.begin_at is None else replace(run, begin_at=run.batch))

    patch.setattr(tasks, "open_run", opened)


def end_without_a_head_believed(patch: pytest.MonkeyPatch) -> None:
    """At the end of a run that had nothing to do, a query without a head has never had one."""
    patch.setattr(verify_module, "was_published", lambda _: False)
