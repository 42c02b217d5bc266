"""The files of a checkpoint: offsets/N before a micro-batch, commits/N after it. The newest may be lost.

Spark renames these files and does not flush them, and people restore backups: so the newest commits/N is gone, or
offsets/N, or both, or those of several micro-batches. A file that is torn is one that is gone, after a start that ends
with EOS_CHECKPOINT_DAMAGED and does what its hint says.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .plan import Plan

LOSSES = ("commits", "offsets", "both", "both of two", "both of all")
#: By how many rows a micro-batch differs that is planned anew, as more have come by then, or a limit was set.
_OTHERWISE = (0, 2, -1)

#: A choice: what is lost, how it is planned anew, whether it was torn.
SIZES = range(len(LOSSES) * len(_OTHERWISE) * 2)


@dataclass
class Checkpoint:
    """``offsets``: what each micro-batch reads. ``anew``: by how many rows more those that are planned anew. ``torn``:
    whether the next start meets what is left of a file."""

    plan: Plan
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    anew: dict[int, int] = field(default_factory=dict)
    torn: bool = False

    @property
    def newest(self) -> int:
        return max(self.offsets) if self.offsets else -1

    @property
    def headless(self) -> bool:
        """Whether offsets/0 alone is gone: Spark 4.2 does not start, and where an older one does, the library stops it,
        as that would plan micro-batch 0 anew, and pass it at the start after that."""
        return not self.offsets and self.committed == {0}

    @property
    def next(self) -> int:
        """The micro-batch that a start begins with."""
        newest = self.newest
        is_committed = newest in self.committed and newest == max(self.committed)
        return newest + 1 if newest < 0 or is_committed else newest

    def planned(self, batch: int) -> tuple[int, int]:
        """What a micro-batch reads that is planned now: the same rows whenever that is, but for those ``anew``."""
        rows = self.plan.rows
        start, end = self.offsets[batch - 1][1] if batch else 0, sum(rows[: batch + 1])
        if batch < len(rows) - 1:
            end = min(end + self.anew.get(batch, 0), sum(rows))
        return start, max(start, end)

    def lose(self, size: int) -> bool:
        """Whether there was something to lose."""
        what, how = LOSSES[size % len(LOSSES)], _OTHERWISE[size // len(LOSSES) % len(_OTHERWISE)]
        count = {"both of two": 2, "both of all": len(self.offsets)}.get(what, 1)
        lost = sorted(self.committed if what == "commits" else self.offsets)[-count:]
        for batch in lost:
            if what != "offsets":
                self.committed.discard(batch)
            if what != "commits":
                del self.offsets[batch]
                self.anew[batch] = how
        self.torn = bool(lost) and size >= len(SIZES) // 2
        return bool(lost)

    def go_back(self, batch: int) -> None:
        """Move files out, so that a micro-batch is replayed."""
        self.committed.difference_update([done for done in self.committed if done >= batch])
        for later in [planned for planned in self.offsets if planned > batch]:
            del self.offsets[later]
