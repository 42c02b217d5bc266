"""The connections of one query in one process: the protocol's ports, reused from micro-batch to micro-batch."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, repeat

from spark_eos.base.caches import process_cache
from spark_eos.base.log import logger
from spark_eos.errors import EosError, ProtocolStop
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ledger.coordinator import TransactionCoordinator
from spark_eos.ledger.query import LedgerPlace, query_ports
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.abort import SWEEPS_AFTER_S, sweep
from spark_eos.protocol.commit import CommitReport, take_ahead
from spark_eos.protocol.head import Decision, Places
from spark_eos.protocol.look_back import Looked, look_back, marked, places_of
from spark_eos.protocol.ports import Ports, Term

#: Seconds to wait before the ledger is taken ahead: while a commit returns, Spark needs the processor.
AHEAD_DELAY_S = 0.05
_CLEAN_LOOKS = 2


@dataclass(frozen=True)
class _Look:
    """A look back at a committed decision, in the background, and at what was to be looked at again: all ``places``.
    ``waiting``: those that cannot be looked at yet."""

    run: str
    decision: Decision | None
    places: Places
    waiting: Future[Places]


class Session:
    """``client`` is that of the cluster to which the query writes; ``ports`` use it for the steps of the protocol, and
    ``coordinator`` is theirs, with methods that only tasks need.

    On the driver, the session also looks once more at what was committed, takes the ledger ahead for the next commit,
    both in the background, and looks for what is left open while the query has nothing to commit. Call ``resume``,
    which ends all of it, before any call on ``ports``.
    """

    def __init__(
        self, client: BrokerClient, ports: Ports, coordinator: TransactionCoordinator, *, two_phase: bool = False
    ) -> None:
        self.client, self.ports, self.coordinator = client, ports, coordinator
        self._two_phase = two_phase
        self._taking: tuple[str, Future[Term | None]] | None = None
        self._look: _Look | None = None
        self._waiting: Places = {}
        self._pool = ThreadPoolExecutor(1, "eos ahead")
        self._busy = threading.Event()
        self._sweeper: threading.Thread | None = None

    def rest(self, run: str, batch: int, report: CommitReport) -> None:
        """After a commit, in the background: look back at it, take the ledger ahead for the run's next commit, and
        abort what late attempts leave open until then."""
        self._begin_look(run, report)
        taking = self._take_ahead(run)
        self._busy.clear()
        self._sweeper = threading.Thread(target=self._sweep, args=(run, batch, taking), name="eos sweep", daemon=True)
        self._sweeper.start()

    def _sweep(self, run: str, batch: int, taking: Future[Term | None]) -> None:
        """Abort what late attempts have left open, until the next commit begins or two looks in a row have found
        nothing. Without two-phase commit there are only a few looks, as transactions time out."""
        taking.exception()  # which ends its use of the ports
        clean = 0
        for seconds in chain(SWEEPS_AFTER_S, repeat(SWEEPS_AFTER_S[-1]) if self._two_phase else ()):
            if self._busy.wait(seconds) or clean == _CLEAN_LOOKS:
                return
            self._look_again()
            try:
                left = sweep(self.ports, run, batch)
            except EosError as error:  # the next commit looks, too
                logger.warning("what batch=%d may have left open could not be looked for: %s", batch, error)
                if self._two_phase:
                    clean = 0
                    continue
                return
            if left is None:
                return
            clean = 0 if left else clean + 1

    def _begin_look(self, run: str, report: CommitReport, *, wait_for_others: bool = False) -> Future[Places]:
        """Look back, in the background, at what was committed and at the places that had to wait before."""
        places = {**self._waiting, **report.unseen, **places_of(report.decision)}
        return self._look_at(run, report.decision, places, wait_for_others)

    def _look_at(
        self, run: str, decision: Decision | None, places: Places, wait_for_others: bool = False
    ) -> Future[Places]:
        def look() -> Places:
            try:
                return look_back(self.ports, places, wait_for_others=wait_for_others)
            except ProtocolStop as error:
                logger.error("%s", error)
                raise marked(self.ports, run, error) from None

        found = self._pool.submit(look)
        self._look = _Look(run, decision, places, found)
        return found

    def _look_again(self) -> None:
        """Look again at places that open transactions of other producers have kept readers from."""
        look = self._look
        if look is not None and look.waiting.exception() is None and look.waiting.result():
            self._look_at(look.run, look.decision, look.waiting.result()).exception()

    def look_now(self, run: str, report: CommitReport, *, wait_for_others: bool) -> None:
        """Look back at what was committed and wait for the answer, as no other commit follows that could. Raises
        ProtocolStop as `look_back` does; the next commit of this process then looks anew."""
        try:
            self._begin_look(run, report, wait_for_others=wait_for_others).result()
        except BaseException:
            self._look = None
            raise

    def seen(self, run: str) -> Looked | None:
        """The decision at which this process has looked back since its commit, if there is one, and what had to wait;
        returned once. Waits for the answer, and raises ProtocolStop as `look_back` does.

        Not where the look was another run's: the start of this one has looked itself since. The places are looked at
        once more with the next commit.
        """
        look, self._look = self._look, None
        if look is None:
            return None
        if look.run != run and look.waiting.exception() is not None:
            self._waiting = look.places
            return None
        self._waiting = look.waiting.result()
        return Looked(look.decision, self._waiting)

    def _take_ahead(self, run: str) -> Future[Term | None]:
        """Take the ledger for the run's next commit, in the background."""

        def take() -> Term | None:
            time.sleep(AHEAD_DELAY_S)
            return take_ahead(self.ports, run)

        taking = self._pool.submit(take)
        self._taking = run, taking
        return taking

    def resume(self, run: str | None = None) -> Term | None:
        """Stop what `rest` has started, and return the ledger if it was taken ahead for this run; it is returned once.
        A failure to take it is ignored: taking the ledger again fails in the same way."""
        self._busy.set()
        if self._sweeper is not None:
            self._sweeper.join()
            self._sweeper = None
        taking, self._taking = self._taking, None
        if taking is None:
            return None
        owner, future = taking
        if future.exception() is not None or owner != run:
            return None
        return future.result()


@process_cache(maxsize=16)
def session_for(client: BrokerClient, options: SinkOptions, ledger_partitions: int, query: str) -> Session:
    """Return the process's session for a query, which is made at the first call."""
    place = LedgerPlace(options.ledger_topic, ledger_partitions, options.prefix)
    ports, coordinator = query_ports(client, place, query, options.group_id)
    return Session(client, ports, coordinator, two_phase=options.two_phase)
