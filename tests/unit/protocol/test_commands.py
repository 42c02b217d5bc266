"""Which head a command closes: the one that it has judged, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_eos.errors import CommandError
from spark_eos.protocol.commands import closes
from spark_eos.protocol.head import NOBODY, Decision, Head

LAST, NEXT = (Decision(batch, 0, 1, 1, 1, None, ()) for batch in (7, 8))
JUDGED = Head("r1", 3, (), 5, LAST)
CLOSED = JUDGED.closed()


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("head", [JUDGED, CLOSED], ids=["judged", "closed by an earlier try"])
def test_a_command_closes_the_head_that_it_has_judged(head: Head, decided: bool):
    """Or finds that it did so before, and did not hear of it."""
    closes(JUDGED, decided=decided)(head)


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize(
    "head",
    [
        pytest.param(replace(JUDGED, run="r2", generation=4), id="the next run, which has decided nothing yet"),
        pytest.param(replace(JUDGED, generation=4), id="a later generation of the run"),
        pytest.param(replace(CLOSED, decision=NEXT), id="closed after another decision"),
        pytest.param(replace(CLOSED, generation=6), id="closed after another start"),
    ],
)
def test_a_command_is_overtaken_by_any_other_head(head: Head, decided: bool):
    """Even where nothing was decided since: that run is alive, or was there after the command looked."""
    assert CLOSED.run == NOBODY
    with pytest.raises(CommandError, match="EOS_COMMAND_OVERTAKEN"):
        closes(JUDGED, decided=decided)(head)


def test_a_run_that_goes_on_is_closed_only_where_that_does_not_matter():
    """It has decided a micro-batch since it was judged, as one that is alive does."""
    closes(JUDGED)(replace(JUDGED, decision=NEXT))
    with pytest.raises(CommandError, match="EOS_COMMAND_OVERTAKEN"):
        closes(JUDGED, decided=True)(replace(JUDGED, decision=NEXT))
