"""What ``spark-eos mirror`` says."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from spark_eos.mirror.groups import Move
from spark_eos.mirror.position import MirrorEnd
from spark_eos.mirror.translating import Step
from spark_eos.ops.answer import Answer


def answer(move: Move) -> Answer:
    """A group's move, as it was done or would be."""
    verb = "is at" if move.done else "would be at"
    lines = [_line(step, verb) for step in move.steps]
    lines += [f"{topic} is not mirrored: its offsets stay as they are" for topic in move.left]
    if move.done:
        lines.append(f"{move.group} was moved{', and deleted at the source for these topics' if move.deletes else ''}")
    else:
        lines.append("nothing was changed; --yes does it")
    return Answer(asdict(move), "\n".join(lines))


def end_answer(end: MirrorEnd) -> Answer:
    """Where a new checkpoint begins."""
    lines = [
        f"query {end.query}: closed, and micro-batch {end.batch} is its last decision",
        f"startingOffsets: {json.dumps(end.offsets)}",
    ]
    lines += [
        f"  {topic}-{p}: nothing of it was mirrored, it begins at its first offset (-2)" for topic, p in end.unread
    ]
    lines += [f"  {topic}-{p}: brokers have lost decided rows, which the new query writes" for topic, p in end.again]
    lines.append(
        "Begin with a new checkpoint and these offsets. Never start the old checkpoint again, or a copy of it."
    )
    data = {
        "query": end.query,
        "batch": end.batch,
        "starting_offsets": end.offsets,
        "unread": [list(place) for place in end.unread],
        "written_again": [list(place) for place in end.again],
    }
    return Answer(data, "\n".join(lines))


def positions(steps: Iterable[Step]) -> Answer:
    """Where offsets are in the target."""
    found = list(steps)
    data = {"positions": [asdict(step) for step in found]}
    return Answer(data, "\n".join(_line(step, "is at") for step in found))


def _line(step: Step, verb: str) -> str:
    place = step.place
    return (
        f"{step.topic}-{step.partition} offset {step.offset}: {verb} offset {place.offset} of "
        f"{place.topic}-{place.partition}"
    )
