"""A broker that is killed loses nothing that it acknowledged. 200 rounds of the same: `make crash`."""

import pytest
from bench import crash

ROUNDS = 20
SEED = 2026


@pytest.mark.crash
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_every_acknowledged_record_survives_kill_9_once_and_in_order(ours_only: None, durability: str) -> None:
    from headwater.testing import Broker

    with Broker(subprocess=True, durability=durability) as broker:
        verdict = crash.run(broker, ROUNDS, SEED, config={})
    assert verdict.violations == []
    assert verdict.rounds == ROUNDS
    assert verdict.acknowledged > 0
