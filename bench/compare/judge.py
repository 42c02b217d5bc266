"""What an output holds, by a plain consumer that reads committed rows: what is lost, doubled, reordered, aborted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.compare.feeder import ABORTED
from demo.topics import Reader

_NUMBERED = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True)
class Verdict:
    """Numbers of rows. ``fed``: how many were committed to the input; ``lost``: those that are not there though a later
    one of their input partition is; ``missing``: those behind the last one that is there, which may be written yet;
    ``reordered``: those that come behind a later one of their input partition in a partition of the output, for the
    first time; ``aborted``: those of aborted transactions; ``strange``: those that nobody fed, or with another key;
    None where that was not looked at."""

    fed: int
    lost: int
    doubled: int
    reordered: int
    aborted: int
    missing: int = 0
    strange: int | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether a reader gets what is not right, or will never get what is."""
        return bool(self.lost or self.doubled or self.aborted or self.strange)

    @property
    def is_clean(self) -> bool:
        """Whether each row is there once, and nothing else."""
        return not (self.is_wrong or self.missing)


class NoResult(Exception):
    """Nothing can be said of a contender, for the reason that is given."""


def judge(servers: str, source: str, output: str, fed: Sequence[int]) -> Verdict:
    """``source``, ``output``: topics; ``fed``: how many rows each partition of the source was given. Raises NoResult
    where the source does not hold just those, and KafkaException and TimeoutError where a topic cannot be read."""
    given = verdict(read(servers, source), fed)
    if not given.is_clean:
        raise NoResult(f"{source} itself has {given}")
    return verdict(read(servers, output), fed)


#: Key and value of a row, None for a null.
Row = tuple[bytes | None, bytes | None]


def verdict(output: Mapping[int, Sequence[Row]], fed: Sequence[int]) -> Verdict:
    """By the rows in each partition of the output, in their order: the value ``p.n`` is row ``n`` of the input's ``p``,
    whose key is ``p``."""
    seen: Counter[tuple[int, int]] = Counter()
    reordered = aborted = strange = 0
    for rows_of_partition in output.values():
        highest: dict[int, int] = {}
        for key, value in rows_of_partition:
            if value is not None and value.endswith(ABORTED.encode()):
                aborted += 1
                continue
            row = _numbered(key, value, fed)
            if row is None:
                strange += 1
                continue
            p, n = row
            reordered += n < highest.get(p, -1) and not seen[row]
            highest[p] = max(n, highest.get(p, -1))
            seen[row] += 1
    lost = missing = 0
    for p, count in enumerate(fed):
        there = [n for n in range(count) if (p, n) in seen]
        missing += count - 1 - max(there, default=-1)
        lost += max(there, default=-1) + 1 - len(there)
    doubled = sum(count - 1 for count in seen.values())
    return Verdict(sum(fed), lost, doubled, reordered, aborted, missing, strange)


def _numbered(key: bytes | None, value: bytes | None, fed: Sequence[int]) -> tuple[int, int] | None:
    """Which row of which partition of the input it is; None for one that nobody fed."""
    text = (value or b"").decode(errors="replace")
    if not _NUMBERED.fullmatch(text):
        return None
    p, n = map(int, text.split("."))
    is_fed = p < len(fed) and n < fed[p] and (key, text) == (str(p).encode(), f"{p}.{n}")
    return (p, n) if is_fed else None


def read(servers: str, topic: str) -> dict[int, list[Row]]:
    """The rows of each partition that are committed now."""
    found: dict[int, list[Row]] = {}
    with Reader(servers, [topic], committed=True) as reader:
        for row in reader.to_end():
            found.setdefault(row.partition, []).append((row.key, row.value))
    return found
