"""Tries a transform on a sample of its topics, on the driver, before anything is planned or written.

A transform that is not a function of each row goes wrong in silence, when a replay cuts the records differently. So it
gets some of the newest records together and in pieces. Visible failures are left to the tasks, as the query may never
read these records: exceptions of the function, and records that cannot be decoded or that the transform rejects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from spark_eos.base import system
from spark_eos.base.log import logger
from spark_eos.errors import EosError, WorkerError, stop
from spark_eos.pipelines.confined import CallLimits, Confined, OutOfBounds, share_mib
from spark_eos.pipelines.copy.comparing import Apply, differing
from spark_eos.pipelines.copy.plan import ByRange, RowTransform, Transform
from spark_eos.pipelines.copy.transforming import OFFSET, Chunk, Transformed, chunks, returned, transformed
from spark_eos.source.newest import newest_records
from spark_eos.spi import BrokerClient, SourceOptions

#: The sample: the newest records of some partitions, as far as their keys and values are not larger together.
_BYTES = 256 * 1024
#: Seconds after which no further pieces are tried; the first partition's halves are tried in any case.
_TRYING_S = 0.03

#: Memory for the sample's process, at least and at most, and its seconds: of the processor, and in all.
_MIB = 512, 4096
_CPU_S, _TIME_S = 20.0, 60.0
#: After how many records that take too much it is not clear whether any other would do.
_TRIES = 3

#: Errors of a transform itself, for which no record is to blame.
_RULES = ("EOS_TRANSFORM_RESULT", "EOS_SCHEMA_INVALID", "EOS_TABLE_COLUMNS")


T = TypeVar("T", bound=RowTransform)
R = TypeVar("R")


def check_by_sample(client: BrokerClient, options: SourceOptions, transform: Transform) -> None:
    """Try a transform to topics on a sample of its source topics. See `check_chunks`."""
    check_chunks(transform, taken(client, options), transformed)


def taken(client: BrokerClient, options: SourceOptions) -> list[Chunk]:
    """Return a sample of the topics; an empty one, and no error, where they cannot be read."""
    try:
        return list(sample(client, options))
    except Exception as error:  # a query that cannot do without raises this error itself
        logger.info("the topics could not be sampled to try the transform: %s", type(error).__name__)
        return []


def check_chunks(transform: T, sampled: Sequence[Chunk], apply: Callable[[T, Chunk], Transformed]) -> None:
    """Try the transform on a sample, in a process of its own. Records that are at fault themselves are no errors.
    ``apply``: runs it on a chunk, as tasks do.

    Raises RowError (EOS_TRANSFORM_RESULT) where the transform is not a function of each row, or takes more for a record
    than it may, and SchemaError for results that are no rows of the sink, with topic, partition and offset.
    """
    _apart(partial(check_here, transform, sampled, apply), partial(_one, transform, apply), sampled)


def check_here(transform: T, sampled: Iterable[Chunk], apply: Callable[[T, Chunk], Transformed]) -> None:
    """Try the transform on a sample, in this process. Raises as `check_chunks`."""
    until = system.monotonic() + _TRYING_S
    for chunk in sampled:
        check_chunk(transform, chunk, until, apply)
        if system.monotonic() > until:
            return


def types_by_sample(transform: RowTransform, sampled: Sequence[Chunk]) -> list[pa.Schema]:
    """Return the columns that the transform returns for each chunk of a sample, in a process of its own; of one for
    which it fails, nothing. Raises RowError where it takes more for a record than it may."""
    return _apart(partial(_types, transform, sampled), partial(_one, transform, returned), sampled) or []


def _types(transform: RowTransform, sampled: Iterable[Chunk]) -> list[pa.Schema]:
    types = []
    for chunk in sampled:
        try:
            types.append(returned(copied(transform), chunk)[0].schema)
        except MemoryError:
            raise
        except Exception:
            logger.info(
                "the transform fails for a sample of records from offset %d on, so they do not tell its columns",
                chunk.first,
            )
    return types


def _one(transform: T, apply: Callable[[T, Chunk], object], record: pa.RecordBatch) -> None:
    apply(copied(transform), Chunk(record, record.column(OFFSET)[0].as_py()))


def _named(position: Mapping[str, object]) -> str:
    return "the record at offset {offset} of {topic}-{partition}".format_map(position)


def _apart(check: Callable[[], R], one: Callable[[pa.RecordBatch], None], sampled: Sequence[Chunk]) -> R | None:
    """See `apart`."""

    def beyond(record: pa.RecordBatch, why: OutOfBounds) -> EosError:
        position = {name: record.column(name)[0].as_py() for name in ("topic", "partition", OFFSET)}
        return stop("EOS_TRANSFORM_RESULT.beyond", where=_named(position), why=why, **position)

    return apart(check, one, [chunk.rows for chunk in sampled], beyond) if sampled else None


def apart(
    check: Callable[[], R],
    one: Callable[[pa.RecordBatch], None],
    rows_of_sample: Sequence[pa.RecordBatch],
    beyond: Callable[[pa.RecordBatch, OutOfBounds], EosError],
) -> R | None:
    """Return the result of ``check`` in a process with limits of time and memory; None where it exceeds them and no
    single record is the cause, or where the process fails. ``one``: checks a single record; ``beyond``: makes the error
    for a record that exceeds the limits. Raises this error, and errors of spark-eos that ``check`` raises."""
    confined = Confined(CallLimits(min(max(share_mib(), _MIB[0]), _MIB[1]), _CPU_S, _TIME_S))
    try:
        return confined.call(check)
    except OutOfBounds as error:
        logger.info("the transform exceeds its limits for a sample of records: %s", error)
        error_beyond = _first_beyond(confined, one, rows_of_sample, beyond)
    except Exception as error:
        if isinstance(error, EosError) and not isinstance(error, WorkerError):
            raise
        logger.info("the transform could not be tried on a sample of records: %s", type(error).__name__)
        return None
    finally:
        confined.close()
    if error_beyond is not None:
        raise error_beyond
    return None


def _first_beyond(
    confined: Confined,
    one: Callable[[pa.RecordBatch], None],
    rows_of_sample: Sequence[pa.RecordBatch],
    beyond: Callable[[pa.RecordBatch, OutOfBounds], EosError],
) -> EosError | None:
    """Return the error for the first record with which the process exceeds its limits; None if it does so with every
    record, as the function may need that to load a model, for example."""
    records = [rows.slice(number, 1) for rows in rows_of_sample for number in range(rows.num_rows)]
    errors: list[EosError] = []
    done = 0
    for record in records:
        try:
            confined.call(one, record)
            done += 1
        except OutOfBounds as why:
            errors.append(beyond(record, why))
        except WorkerError:
            return None
        except Exception:  # the record's own fault
            done += 1
        if errors and (done or len(records) == 1):
            return errors[0]
        if len(errors) == _TRIES:
            return None
    return None


def sample(client: BrokerClient, options: SourceOptions) -> Iterator[Chunk]:
    """Yield the newest records of some partitions, as far as a query may read them. Raises EosError."""
    for records in newest_records(client, options):
        pieces = list(chunks(records, most_bytes=_BYTES))
        if pieces:
            yield max(pieces, key=lambda chunk: chunk.rows.num_rows)


def check_chunk(transform: T, chunk: Chunk, until: float, apply: Callable[[T, Chunk], Transformed]) -> None:
    """Try the transform on these records of one partition. ``until``: by `system.monotonic`, when to leave it at that.
    Raises as `check_chunks`."""
    topic, partition = (chunk.rows.column(name)[0].as_py() for name in ("topic", "partition"))

    def position(number: int) -> dict[str, object]:
        return {"topic": topic, "partition": partition, "offset": chunk.rows.column(OFFSET)[number].as_py()}

    sample = SampleDescription(f"{topic}-{partition} from offset {chunk.first} on", position, _named)
    check_rows(lambda: partial(_on_records, partial(apply, copied(transform))), chunk.rows, until, sample)


@dataclass(frozen=True)
class SampleDescription:
    """How errors name a sample. ``where``: its description; ``position``: returns an error's parameters for one of its
    rows, by row number; ``named``: describes that row by these parameters."""

    where: str
    position: Callable[[int], dict[str, object]]
    named: Callable[[Mapping[str, object]], str]

    def differs(self, number: int, records: int, *, at_once: bool) -> EosError:
        """Return the error for a transform whose rows differ from the row with this number on. ``at_once``: also where
        it gets the same rows together again."""
        at = self.position(number)
        row = self.named(at)
        if at_once:
            return stop("EOS_TRANSFORM_RESULT.sample", how=f"again: near {row}", records=records, **at)
        how = f"in pieces instead of together: near {row}"
        return stop("EOS_TRANSFORM_RESULT.sample", how=how, records=records, **at)


def check_rows(copy: Callable[[], Apply], rows: pa.RecordBatch, until: float, sample: SampleDescription) -> None:
    """Try a transform on these rows. ``copy``: makes it as tasks get it; ``until``: by `system.monotonic`, when to
    leave it at that. Raises as `check_chunks`."""
    try:
        apply = copy()
        whole = apply(rows)
        first = _first_differing(apply, rows, whole, until)
        if first is None:
            return
        at_once = differing(apply, rows, whole, [rows.num_rows]) is not None
    except MemoryError:
        raise
    except Exception as error:
        if not isinstance(error, EosError) or error.condition not in _RULES:
            logger.info("the transform could not be tried on %s: %s", sample.where, type(error).__name__)
            return
        message = f"{error.message} It got a sample of records: {sample.where}."
        raise error.reworded(message, error.hint, **sample.position(0) | error.parameters) from None
    raise sample.differs(first, rows.num_rows, at_once=at_once)


def copied(transform: T) -> T:
    """Copy the transform as tasks get it, so that state that it keeps between calls stays in the copy, and rejected
    records are no error."""
    from pyspark import cloudpickle

    dropping = replace(transform, on_malformed="drop")
    copy: T = cloudpickle.loads(cloudpickle.dumps(dropping))  # type: ignore[no-untyped-call]  # PySpark's
    if isinstance(copy.function, ByRange):  # schemas that are registered meanwhile make no difference
        return replace(copy, function=copy.function.for_range(None))
    return copy


def _first_differing(apply: Apply, rows: pa.RecordBatch, whole: Transformed, until: float) -> int | None:
    """Compare in halves, then in pieces that grow from a single record on. See `differing`."""
    count = rows.num_rows
    halves = [count // 2, count - count // 2] if count > 1 else [1]
    first = differing(apply, rows, whole, halves)
    if first is None and system.monotonic() < until:
        first = differing(apply, rows, whole, _growing(count))
    return first


def _on_records(transform: Callable[[Chunk], Transformed], records: pa.RecordBatch) -> Transformed:
    return transform(Chunk(records, records.column(OFFSET)[0].as_py()))


def _growing(count: int) -> Iterator[int]:
    """Yield 1, 1, 2, 3, 5, 8, … up to ``count`` together."""
    size, next_ = 1, 1
    while count > 0:
        yield min(size, count)
        count -= size
        size, next_ = next_, size + next_
