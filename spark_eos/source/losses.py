"""Data loss: what happens if the cluster no longer has offsets that a query needs, depending on ``failOnDataLoss``."""

from __future__ import annotations

from collections.abc import Iterable

from spark_eos.errors import EosError, stop
from spark_eos.kafka.records.batches import OtherEpoch
from spark_eos.log import logger

#: Seconds in which something must not be seen once, so that it counts as gone where it is left out for good: a broker
#: that lags behind the others does not know the newest topics yet, or still knows the old ones.
HIDDEN_S = 5.0


class Losses:
    """If ``fail``, an error for the first loss; otherwise one warning for each, and a count."""

    def __init__(self, fail: bool) -> None:
        self.fail = fail
        self._seen: set[tuple[object, ...]] = set()

    @property
    def count(self) -> int:
        """Losses so far. Each is of one partition, whatever the number of records."""
        return len(self._seen)

    def report_all(self, losses: Iterable[EosError]) -> None:
        """Raise the first one, or log them."""
        for loss in losses:
            self.report(loss)

    def report(self, loss: EosError) -> None:
        """Raise it, or log it."""
        if self.fail:
            raise loss
        key = tuple(loss.parameters[name] for name in ("topic", "partition", "expected", "found"))
        if key not in self._seen:
            self._seen.add(key)
            logger.warning("%s The query continues: failOnDataLoss is false.", loss.message)


def data_loss(topic: str, partition: int, expected: int, found: int | None, what: str) -> EosError:
    """The error for offsets that the query needs and the cluster does not have. ``found``: the closest existing
    offset."""
    if found is None:
        return stop(
            "EOS_SOURCE_DATA_LOSS.gone", topic=topic, partition=partition, expected=expected, found=found, what=what
        )
    return stop(
        "EOS_SOURCE_DATA_LOSS.lacks", topic=topic, partition=partition, expected=expected, found=found, what=what
    )


def log_diverged(topic: str, partition: int, expected: int, found: int, epoch: int) -> EosError:
    """The error for a log that was cut before an offset up to which it was read or planned, and has grown again.
    ``found``: from where on it is another log; ``epoch``: that of the record before ``expected``, as it was."""
    what = f"it had a record of leader epoch {epoch} before that offset, and from offset {found} on it now has others"
    return _diverged(topic, partition, expected, found, what)


def epoch_diverged(topic: str, partition: int, position: int, other: OtherEpoch) -> EosError:
    """The error for a batch that is not of the log for which the range was planned. What of the range was read
    before ``position`` is."""
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
    """The offsets of a checkpoint are of one cluster, ``noted`` there, if it is; ``now`` is that of the servers, if
    brokers tell. Raises CheckpointError (EOS_SOURCE_CLUSTER_CHANGED)."""
    if noted and now and noted != now:
        raise stop("EOS_SOURCE_CLUSTER_CHANGED", checkpoint_cluster=noted, servers_cluster=now)
