"""Chooses the partition of each row, as librdkafka's partitioners of the same names do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.kafka.partitioners import CONSISTENT_RANDOM, MURMUR2_RANDOM
from spark_eos.kafka.producer.hashes import Hashes, crc32_of, fnv1a, murmur2


@dataclass(frozen=True)
class _Rule:
    """A partitioner: ``hash`` chooses the partition. A null key, or also an empty one, goes to any partition or counts
    as empty.

    Java's clients mask the sign of the hash (``bits``), other clients do not.
    """

    hash: Callable[[pa.BinaryArray], Hashes] | None
    null_anywhere: bool = True
    empty_anywhere: bool = False
    bits: int = 0xFFFFFFFF


_RULES = {
    "random": _Rule(None),
    "consistent": _Rule(crc32_of, null_anywhere=False),
    CONSISTENT_RANDOM: _Rule(crc32_of, empty_anywhere=True),
    "murmur2": _Rule(murmur2, null_anywhere=False, bits=0x7FFFFFFF),
    MURMUR2_RANDOM: _Rule(murmur2, bits=0x7FFFFFFF),
    "fnv1a": _Rule(fnv1a, null_anywhere=False),
    "fnv1a_random": _Rule(fnv1a),
}


class Partitioner:
    """The partitioner called ``name``, one of `PARTITIONERS`, for a topic with ``count`` partitions.

    All rows of one call that may go to any partition go to the same one, which makes large batches; the next call uses
    the next partition.
    """

    def __init__(self, count: int, name: str) -> None:
        self.count = count
        self._rule = _RULES[name]
        self._next = random.randrange(count)

    def choose(self, key: pa.Array, given: pa.Array) -> np.ndarray:
        """Return the partition of each row, as int32. ``given``: the user's choice, int32, or null."""
        if not given.null_count:
            return np.asarray(given)
        chosen = self._by_key(key)
        if given.null_count < len(given):
            wanted = pc.fill_null(given, -1).to_numpy()
            chosen = np.where(wanted < 0, chosen, wanted)
        return chosen

    def _by_key(self, key: pa.Array) -> np.ndarray:
        self._next = (self._next + 1) % self.count
        rule = self._rule
        no_keys = key.null_count == len(key)
        if rule.hash is None or self.count == 1 or (no_keys and rule.null_anywhere):
            return np.full(len(key), self._next, np.int32)
        keys = pc.fill_null(key, b"")
        chosen = ((rule.hash(keys) & np.uint32(rule.bits)) % np.uint32(self.count)).astype(np.int32)
        if rule.empty_anywhere:
            chosen[pc.equal(pc.binary_length(keys), 0).to_numpy(zero_copy_only=False)] = self._next
        elif rule.null_anywhere and key.null_count:
            chosen[key.is_null().to_numpy(zero_copy_only=False)] = self._next
        return chosen
