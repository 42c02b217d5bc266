"""When the driver has planned a micro-batch, noted for the process that commits it: of its tasks' transactions, none is
older. By the driver's clocks alone, as those of executors and brokers may be off."""

from __future__ import annotations

from collections.abc import Sequence

from spark_eos import system
from spark_eos.clocks import Moment
from spark_eos.protocol.ports import Ports
from spark_eos.sink.messages import Message


def planned_now() -> Moment:
    """Call it on the driver for each micro-batch, before its tasks have their writer.

    By a clock that all processes of a machine share, and that goes on while it sleeps, and by the time of day, which
    also tells of a virtual machine that was paused.
    """
    return Moment.now(system.steady, system.time_of_day)


def planned_ms(ports: Ports, received: Sequence[Message]) -> int | None:
    """When the micro-batch was planned, by ``ports.elapsed_ms``; None where a task does not know."""
    moments = [message.planned for message in received]
    ago = [0 if at is None else at.ago_ms(system.steady, system.time_of_day) for at in moments]
    return None if None in moments else ports.elapsed_ms() - max(ago, default=0)
