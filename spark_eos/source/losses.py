"""Data loss: what happens if the cluster no longer has offsets that a query needs, depending on ``failOnDataLoss``."""

from __future__ import annotations

from collections.abc import Iterable

from spark_eos.errors import CheckpointError, DataLossError
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

    def report_all(self, losses: Iterable[DataLossError]) -> None:
        """Raise the first one, or log them."""
        for loss in losses:
            self.report(loss)

    def report(self, loss: DataLossError) -> None:
        """Raise it, or log it."""
        if self.fail:
            raise loss
        key = tuple(loss.parameters.values())
        if key not in self._seen:
            self._seen.add(key)
            logger.warning("%s The query continues: failOnDataLoss is false.", loss.message)


_GONE = (
    "Nothing was read or skipped. Bring it back, or set 'failOnDataLoss' to false for one start: the query then "
    "continues from this checkpoint without it, and notes where it was. If the same topic comes back, it is read on "
    "from there."
)
_LACKS = (
    "Nothing was read or skipped. Restore the topic, or set 'failOnDataLoss' to false for one start: the query then "
    "continues from this checkpoint with the first record that is left, or with a new topic from its beginning. A new "
    "checkpoint does not help: with 'startingOffsets' = group it would begin at the same offsets, which Kafka deletes "
    "together with their topic."
)


def data_loss(topic: str, partition: int, expected: int, found: int | None, what: str) -> DataLossError:
    """The error for offsets that the query needs and the cluster does not have. ``found``: the closest existing
    offset."""
    return DataLossError(
        "EOS_SOURCE_DATA_LOSS",
        f"Expected offset {expected} of {topic}-{partition}, but {what}.",
        hint=_GONE if found is None else _LACKS,
        topic=topic,
        partition=partition,
        expected=expected,
        found=found,
    )


def log_diverged(topic: str, partition: int, expected: int, found: int, epoch: int) -> DataLossError:
    """The error for a log that was cut before an offset up to which it was read or planned, and has grown again.
    ``found``: from where on it is another log; ``epoch``: that of the record before ``expected``, as it was."""
    what = f"it had a record of leader epoch {epoch} before that offset, and from offset {found} on it now has others"
    return _diverged(topic, partition, expected, found, what)


def epoch_diverged(topic: str, partition: int, position: int, other: OtherEpoch) -> DataLossError:
    """As `log_diverged`, for a batch that is not of the log for which the range was planned. What of the range was read
    before ``position`` is."""
    what = f"the batch at offset {other.base} is of leader epoch {other.epoch}, and there was another one"
    return _diverged(topic, partition, position, min(other.base, position), what)


def _diverged(topic: str, partition: int, expected: int, found: int, what: str) -> DataLossError:
    return DataLossError(
        "EOS_SOURCE_LOG_DIVERGED",
        f"The log of {topic}-{partition} up to offset {expected} is not the one that was there: {what}. It has lost "
        "its newest records, as by an unclean leader election or a power failure, and new ones have the same offsets.",
        hint="Nothing was read or skipped since. Rows that were read of the old log stay where they were written. Set "
        f"'failOnDataLoss' to false for one start: the query then continues at offset {min(found, expected)}, with "
        "what is there now. To keep brokers from losing records, set 'unclean.leader.election.enable' to false and "
        "'min.insync.replicas' to 2, with three replicas.",
        topic=topic,
        partition=partition,
        expected=expected,
        found=found,
    )


def check_cluster(noted: str | None, now: str) -> None:
    """The offsets of a checkpoint are of one cluster, ``noted`` there, if it is; ``now`` is that of the servers, if
    brokers tell. Raises CheckpointError (EOS_SOURCE_CLUSTER_CHANGED)."""
    if noted and now and noted != now:
        raise CheckpointError(
            "EOS_SOURCE_CLUSTER_CHANGED",
            f"The checkpoint has offsets of cluster {noted}, and 'kafka.bootstrap.servers' of the source are of {now}.",
            hint="At the same offsets, another cluster has other rows, so 'failOnDataLoss' does not matter here. "
            "Correct the servers. To read from the other cluster, begin with a new checkpoint, whose 'startingOffsets' "
            "are offsets of that cluster: these here say nothing about it.",
            noted=noted,
            now=now,
        )
