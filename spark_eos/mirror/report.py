"""What ``spark-eos mirror`` says."""

from __future__ import annotations

from dataclasses import asdict

from spark_eos.mirror.groups import Move
from spark_eos.ops.answer import Answer


def answer(move: Move) -> Answer:
    """A group's move, as it was done or would be."""
    verb = "is at" if move.done else "would be at"
    lines = [
        f"{step.topic}-{step.partition} offset {step.offset}: {verb} offset {step.place.offset} of "
        f"{step.place.topic}-{step.place.partition}"
        for step in move.steps
    ]
    lines += [f"{topic} is not mirrored: its offsets stay as they are" for topic in move.left]
    if move.done:
        lines.append(f"{move.group} was moved{', and deleted at the source for these topics' if move.deletes else ''}")
    else:
        lines.append("nothing was changed; --yes does it")
    return Answer(asdict(move), "\n".join(lines))
