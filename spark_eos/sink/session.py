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
from spark_eos.ledger.query import LedgerAddress, query_ports
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.abort import SWEEPS_AFTER_S, sweep
from spark_eos.protocol.commit import CommitReport, take_ahead
from spark_eos.protocol.head import Decision, TransactionStarts
from spark_eos.protocol.ports import Ports, Term
from spark_eos.protocol.verify import Verified, starts_of, verify_visible, with_missing_marked

#: Seconds to wait before the ledger is taken ahead: while a commit returns, Spark needs the processor.
AHEAD_DELAY_S = 0.05
_CLEAN_LOOKS = 2


@dataclass(frozen=True)
class _Verification:
    """A verification, in the background, of a committed decision, and of all ``starts`` that were blocked before.
    ``blocked``: the starts that still are."""

    run: str
    decision: Decision | None
    starts: TransactionStarts
    blocked: Future[TransactionStarts]


class Session:
    """Clients of a query's sink. ``client``: of the cluster to which the query writes; ``ports`` use it for the steps
    of the protocol, and ``coordinator`` is theirs, with methods that only tasks need.

    On the driver, the session works in the background after a commit: it verifies that the commit is visible, takes the
    ledger ahead for the next one, and aborts transactions that late attempts leave open while the query has nothing to
    commit. Call `stop_background_work` before any call on ``ports``.
    """

    def __init__(
        self, client: BrokerClient, ports: Ports, coordinator: TransactionCoordinator, *, two_phase: bool = False
    ) -> None:
        self.client, self.ports, self.coordinator = client, ports, coordinator
        self._two_phase = two_phase
        self._taking: tuple[str, Future[Term | None]] | None = None
        self._verification: _Verification | None = None
        self._blocked: TransactionStarts = {}
        self._pool = ThreadPoolExecutor(1, "eos ahead")
        self._busy = threading.Event()
        self._sweeper: threading.Thread | None = None

    def start_background_work(self, run: str, batch: int, report: CommitReport) -> None:
        """Verify, after a commit, that it is visible, take the ledger ahead for the run's next commit, and abort
        transactions that late attempts leave open until then."""
        self._verify(run, report.decision, self._starts(report))
        taking = self._take_ahead(run)
        self._busy.clear()
        self._sweeper = threading.Thread(target=self._sweep, args=(run, batch, taking), name="eos sweep", daemon=True)
        self._sweeper.start()

    def _sweep(self, run: str, batch: int, taking: Future[Term | None]) -> None:
        """Abort transactions that late attempts leave open, until the next commit begins or two looks in a row find
        none. Without two-phase commit there are only a few looks, as transactions time out."""
        taking.exception()  # which ends its use of the ports
        clean = 0
        for seconds in chain(SWEEPS_AFTER_S, repeat(SWEEPS_AFTER_S[-1]) if self._two_phase else ()):
            if self._busy.wait(seconds) or clean == _CLEAN_LOOKS:
                return
            self._verify_blocked()
            try:
                left = sweep(self.ports, run, batch)
            except EosError as error:  # the next commit looks, too
                logger.warning("transactions that batch=%d may have left open could not be listed: %s", batch, error)
                if self._two_phase:
                    clean = 0
                    continue
                return
            if left is None:
                return
            clean = 0 if left else clean + 1

    def _starts(self, report: CommitReport) -> TransactionStarts:
        """Return the starts to verify after a commit: its own, and those that were blocked before."""
        return {**self._blocked, **report.unverified, **starts_of(report.decision)}

    def _verify(
        self, run: str, decision: Decision | None, starts: TransactionStarts, *, wait_for_others: bool = False
    ) -> Future[TransactionStarts]:
        def verify() -> TransactionStarts:
            try:
                return verify_visible(self.ports, starts, wait_for_others=wait_for_others)
            except ProtocolStop as error:
                logger.error("%s", error)
                raise with_missing_marked(self.ports, run, error) from None

        blocked = self._pool.submit(verify)
        self._verification = _Verification(run, decision, starts, blocked)
        return blocked

    def _verify_blocked(self) -> None:
        """Verify anew the starts that open transactions of other producers have blocked."""
        last = self._verification
        if last is not None and last.blocked.exception() is None and last.blocked.result():
            self._verify(last.run, last.decision, last.blocked.result()).exception()

    def verify_now(self, run: str, report: CommitReport, *, wait_for_others: bool) -> None:
        """Verify the commit and wait for the result, as perhaps no other commit follows that could. Raises ProtocolStop
        as `verify_visible` does; the next commit of this process then verifies anew."""
        try:
            self._verify(run, report.decision, self._starts(report), wait_for_others=wait_for_others).result()
        except BaseException:
            self._verification = None
            raise

    def verified(self, run: str) -> Verified | None:
        """Return the decision that this process has verified since its last commit, once; None without one. Waits for
        the result, and raises ProtocolStop as `verify_visible` does.

        A failure for another run is not raised, as the start of this run has verified since: the starts that
        failed are verified again with the next commit.
        """
        last, self._verification = self._verification, None
        if last is None:
            return None
        if last.run != run and last.blocked.exception() is not None:
            self._blocked = last.starts
            return None
        self._blocked = last.blocked.result()
        return Verified(last.decision, self._blocked)

    def _take_ahead(self, run: str) -> Future[Term | None]:
        """Take the ledger for the run's next commit, in the background."""

        def take() -> Term | None:
            time.sleep(AHEAD_DELAY_S)
            return take_ahead(self.ports, run)

        taking = self._pool.submit(take)
        self._taking = run, taking
        return taking

    def stop_background_work(self, run: str | None = None) -> Term | None:
        """Stop the work of `start_background_work`, and return the term, once, if the ledger was taken ahead for this
        run. A failure to take it is ignored: taking it again fails in the same way."""
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
    address = LedgerAddress(options.ledger_topic, ledger_partitions, options.prefix)
    ports = query_ports(client, address, query, options.group_id)
    assert isinstance(ports.coordinator, TransactionCoordinator)
    return Session(client, ports, ports.coordinator, two_phase=options.two_phase)
