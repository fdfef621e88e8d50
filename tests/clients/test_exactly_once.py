"""Each input has its effect once, whoever is killed. 200,000 inputs and 40 kills of the same: `make exactly-once`."""

import pytest
from bench import exactly_once

from tests.clients.restartable import restartable

SEED = 2026
INPUTS = 20_000


@pytest.mark.crash
def test_every_input_is_counted_once_though_the_broker_and_its_programs_are_killed(ours_only: None) -> None:
    with restartable(durability="sync") as broker:
        verdict = exactly_once.run(broker, INPUTS, broker_kills=3, program_kills=3, seed=SEED)
    assert verdict.violations == []
    assert verdict.outputs == INPUTS
    assert (verdict.broker_kills >= 3, verdict.program_kills) == (True, 3)
