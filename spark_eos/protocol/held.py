"""How a command publishes heads one after the other, and notices between two of its steps that others have gone on.

A command may stall for any time, while somebody else runs the same command to its end and the query goes on. So what
it does next goes by the head on which it has judged, or the one that it has published last: each publication of
somebody else, and each start of the query, has another run or another generation.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_eos.errors import CommandError
from spark_eos.protocol.closing import known_head
from spark_eos.protocol.head import NOBODY, Head, Offsets
from spark_eos.protocol.newest import take
from spark_eos.protocol.ports import NotPublished, Ports
from spark_eos.protocol.stops import ledger_busy


def publish_next(
    ports: Ports, query: str, judged: Head, following: Callable[[Head], Head], offsets: Offsets | None = None
) -> Head:
    """Publish the head that ``following`` makes of the newest one, as long as that is of the same run and generation as
    the one that was ``judged``; returns it. Whoever has published that one before is fenced by this.

    Raises CommandError (EOS_COMMAND_OVERTAKEN) where it is another one, what ``following`` raises, LedgerError and
    Unclear (EOS_LEDGER_BUSY).
    """
    published: Head | None = None
    for _ in ports.retrying():
        # Whoever takes the ledger ends its last transaction, which tells of a ledger that was lost.
        term = take(ports, known_head(ports.ledger.read(), query))
        if term is None:
            continue
        head = known_head(term.read(), query)
        if head == published:
            return head  # it was not known whether this had worked
        check_held(head, judged)
        published = following(head)
        try:
            term.publish(published, offsets)
        except NotPublished:
            continue
        return published
    raise ledger_busy()


def check_still(ports: Ports, query: str, mine: Head) -> None:
    """Raise CommandError (EOS_COMMAND_OVERTAKEN) unless the newest head is the one that this command has published."""
    check_held(known_head(ports.ledger.read(), query), mine)


def check_held(head: Head, judged: Head) -> None:
    """Raise CommandError (EOS_COMMAND_OVERTAKEN) unless this is the run and the generation that was judged."""
    if (head.run, head.generation) != (judged.run, judged.generation):
        raise overtaken(f"its head in the ledger is of generation {head.generation}, and was of {judged.generation}")


def closes(judged: Head, *, decided: bool = False) -> Callable[[Head], None]:
    """A check for whoever closes the query: that its head is of the run and generation that was ``judged``; with
    ``decided``, also that this run has decided nothing since, as one that is alive does."""

    def check(head: Head) -> None:
        if (head.run, head.generation, head.decision) == (NOBODY, judged.generation + 1, judged.decision):
            return  # it is closed already, maybe by a try of which nobody knew whether it had worked
        check_held(head, judged)
        if decided and head.decision != judged.decision:
            raise overtaken(f"run {head.run} has decided since then")

    return check


def overtaken(why: str) -> CommandError:
    """The error for a command that finds that something else has gone on while it was at work."""
    return CommandError(
        "EOS_COMMAND_OVERTAKEN",
        f"While this command was at work, another one has taken over, or the query was started: {why}.",
        hint="From here on, nothing was changed. 'spark-eos checkpoint show' or 'spark-eos ledger show' says how the "
        "query is now; if something is still to be done, run the command again.",
    )
