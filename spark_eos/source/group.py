"""Commits the position of a query with any sink to a consumer group: ``offsets.group.id`` of the source.

Lag tools read that group. The query itself continues from its checkpoint and does not depend on it. So commits happen
in the background, move offsets only forward, and failures are warnings.
"""

from __future__ import annotations

import threading
import time

from spark_eos.base.log import logger
from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import PartitionOffsets
from spark_eos.errors import EosError
from spark_eos.kafka.admin.groups import ConsumerGroup
from spark_eos.kafka.codes import COORDINATOR_RETRIES, OK, UNKNOWN_TOPIC, name_of
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.offset_commit import offset_commit

#: Seconds from one report to the next, so that a micro-batch costs no request of its own.
_PAUSE_S = 1.0
_TRY_S = 4.0
#: Seconds for which a commit is retried, with the look-up of the coordinator.
_PATIENCE_S = 10.0
#: Seconds from a failed report to the next one.
_RETRY_S = 30.0
#: Seconds to wait for the last report of a query that ends by itself.
_LAST_S = 10.0


class GroupReport:
    """Reports to one group. ``reach`` may be called at any time, from one thread; it never raises and never waits."""

    def __init__(self, client: BrokerClient, group: str) -> None:
        self._client, self._group = client, group
        self._lock = threading.Lock()
        self._last: PartitionOffsets = {}
        self._next: PartitionOffsets | None = None
        self._thread: threading.Thread | None = None
        self._hurry = threading.Event()
        self._failing = False

    def reach(self, position: PartitionOffsets) -> None:
        """Report, in the background, that everything before this position is processed."""
        with self._lock:
            if position == self._last:
                return
            self._last = self._next = position
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="eos group", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Wait at most `_LAST_S` seconds for the last report: the process may end after this."""
        with self._lock:
            working = self._thread
        if working is not None:
            self._hurry.set()
            working.join(_LAST_S)
            self._hurry.clear()

    def _work(self) -> None:
        while True:
            with self._lock:
                position, self._next = self._next, None
                if position is None:
                    self._thread = None
                    return
            self._try(position)
            self._hurry.wait(_RETRY_S if self._failing else _PAUSE_S)

    def _try(self, position: PartitionOffsets) -> None:
        try:
            refused = self._report(position)
        except EosError as error:
            refused = error.message
        except Exception as error:  # a thread that dies would silently end the reports for good
            refused = f"{type(error).__name__}: {error}"
        if refused and not self._failing:
            logger.warning(
                "the consumer group %s does not get the offsets of the query: %s. The query does not need that, and "
                "goes on; this is tried again.",
                self._group,
                refused.rstrip("."),
            )
        self._failing = bool(refused)
        if refused:
            with self._lock:
                self._last = {}  # the next poll of an idle query brings it again

    def _report(self, position: PartitionOffsets) -> str | None:
        """Commit the offsets that are ahead of the group's. The reason if that failed, else None."""
        partitions = {topic: list(offsets) for topic, offsets in position.items() if offsets}
        if not partitions:
            return None
        there = ConsumerGroup(self._client, self._group).committed(
            partitions, _PATIENCE_S, isolation="read_uncommitted"
        )
        newer = {
            topic: {p: at for p, at in offsets.items() if at > there.get(topic, {}).get(p, -1)}
            for topic, offsets in position.items()
        }
        newer = {topic: offsets for topic, offsets in newer.items() if offsets}
        if not newer:
            return None
        refused, began = "no answer from the group's coordinator", time.monotonic()
        for _ in retrying(_PATIENCE_S):
            left = max(0.1, began + _PATIENCE_S - time.monotonic())
            answer = offset_commit(self._client, self._group, newer, min(_TRY_S, left))
            if answer is None:
                continue
            codes = set(answer.values()) if isinstance(answer, dict) else {answer}
            wrong = codes - {OK} - UNKNOWN_TOPIC  # a topic that was deleted has no offsets
            if not wrong:
                return None
            refused = name_of(min(wrong))
            if not wrong <= COORDINATOR_RETRIES:
                break
        return refused
