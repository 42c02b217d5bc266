"""Reports data loss, which is that the cluster no longer has offsets that a query needs, by ``failOnDataLoss``."""

from __future__ import annotations

from collections.abc import Iterable

from spark_eos.base.log import logger
from spark_eos.errors import EosError, stop
from spark_eos.kafka.records.batches import OtherEpoch

#: Seconds for which a topic or partition must be missing before its offsets are skipped for good: a broker that lags
#: behind the others does not know new topics yet, or still knows old ones.
HIDDEN_S = 5.0
#: How many losses are remembered, so that each is logged once.
_REMEMBERED = 20_000


class Losses:
    """Reports data loss: if ``fail``, the first loss is raised; otherwise each is logged once, and counted."""

    def __init__(self, fail: bool) -> None:
        self.fail = fail
        self._seen: dict[tuple[object, ...], None] = {}
        #: The number of losses so far. A loss is of one partition, and of any number of records.
        self.count = 0

    def report_all(self, losses: Iterable[EosError]) -> None:
        """Raise the first loss, or log all of them."""
        for loss in losses:
            self.report(loss)

    def report(self, loss: EosError) -> None:
        """Raise the loss, or log it."""
        if self.fail:
            raise loss
        key = tuple(loss.parameters[name] for name in ("topic", "partition", "expected", "found"))
        if key not in self._seen:
            self.count += 1
            self._seen[key] = None
            if len(self._seen) > _REMEMBERED:
                del self._seen[next(iter(self._seen))]
            logger.warning("%s The query continues: failOnDataLoss is false.", loss.message)


def data_loss(
    topic: str,
    partition: int,
    expected: int,
    found: int | None,
    what: str,
    readable: tuple[int, int] | None = None,
    *,
    selected: bool = True,
) -> EosError:
    """Return the error for offsets that the query needs and the cluster does not have. ``found``: the closest existing
    offset. ``readable``: the part of its range that a task can still read, from the first to the second offset.
    ``selected``: the query's options still include the partition."""
    loss = {"topic": topic, "partition": partition, "expected": expected, "found": found, "what": what}
    if not selected:
        return stop("EOS_SOURCE_DATA_LOSS.not_selected", **loss)
    if found is None:
        return stop("EOS_SOURCE_DATA_LOSS.gone", **loss)
    return stop("EOS_SOURCE_DATA_LOSS.lacks", **loss, readable=readable)


def begins_late(first: int) -> str:
    """Return the reason for a loss in a partition whose first offset is behind one that is to be read."""
    return f"its log now starts at {first} (retention or deleted records)"


def ends_early(end: int) -> str:
    """Return the reason for a loss in a partition that ends before an offset that was read or planned."""
    return f"its log ends at {end} (the topic was recreated or truncated)"


def log_diverged(topic: str, partition: int, expected: int, found: int, epoch: int) -> EosError:
    """Return the error for a log that was truncated before the offset ``expected``, up to which it was read or planned,
    and has grown again. ``found``: the offset from which it differs. ``epoch``: the leader epoch of the record that was
    before ``expected``."""
    what = f"it had a record of leader epoch {epoch} before that offset, and from offset {found} on it now has others"
    return _diverged(topic, partition, expected, found, what)


def epoch_diverged(topic: str, partition: int, position: int, other: OtherEpoch) -> EosError:
    """Return the error for a record batch that is not of the log for which the range was planned. Rows of the range
    before ``position`` are."""
    what = f"the batch at offset {other.base} has leader epoch {other.epoch}, and had another one"
    return _diverged(topic, partition, position, min(other.base, position), what)


def _diverged(topic: str, partition: int, expected: int, found: int, what: str) -> EosError:
    return stop(
        "EOS_SOURCE_LOG_DIVERGED",
        topic=topic,
        partition=partition,
        expected=expected,
        found=found,
        change=what,
        restart_offset=min(found, expected),
    )


def check_cluster(noted: str | None, now: str) -> None:
    """Raise CheckpointError (EOS_SOURCE_CLUSTER_CHANGED) if the cluster id in the offset log, ``noted``, differs from
    ``now``, that of the brokers. An id that is not known is None or empty, and differs from none."""
    if noted and now and noted != now:
        raise stop("EOS_SOURCE_CLUSTER_CHANGED", checkpoint_cluster=noted, servers_cluster=now)
