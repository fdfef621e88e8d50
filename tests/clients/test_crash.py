"""A broker that is killed loses nothing that it acknowledged. 200 rounds of the same: `make crash`."""

import pytest
from bench import crash

from tests.support.effort import amount

SEED = 2026


@pytest.mark.crash
@pytest.mark.parametrize(("durability", "rounds"), [("sync", amount(20, 4)), ("os", amount(8, 2))])
def test_every_acknowledged_record_survives_kill_9_once_and_in_order(
    ours_only: None, durability: str, rounds: int
) -> None:
    from headwater.testing import Broker

    with Broker(subprocess=True, durability=durability) as broker:
        verdict = crash.run(broker, rounds, SEED, config={})
    assert verdict.violations == []
    assert verdict.rounds == rounds
    assert verdict.acknowledged > 0
