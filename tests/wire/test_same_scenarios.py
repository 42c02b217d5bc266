"""The brokers of these tests answer as the model of the simulation does, which is held against a real broker."""

from __future__ import annotations

import pytest

from .faults import Schedule
from .play import staged
from .same import SCENARIOS, TWO_PHASE_SCENARIOS, Modelled, Wire
from .two_phase import TwoPhase


@pytest.mark.parametrize("scenario", (*SCENARIOS, *TWO_PHASE_SCENARIOS), ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("markers_s", [0.0005, 1.5])
def test_brokers_and_model_answer_the_same(scenario, markers_s: float) -> None:
    """The same calls, by our own I/O on brokers that answer in bytes, and on the model."""
    with staged(Schedule(3, markers_s=markers_s, two_phase=TwoPhase())) as stage:
        told = scenario(Wire(stage.scene))
    assert told == scenario(Modelled())
