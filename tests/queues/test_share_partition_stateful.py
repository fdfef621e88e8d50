"""Random histories of share partitions: some that hypothesis can make simple, many more from seeds."""

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.queues.queue_world import DrawnChance, QueueWorld, SeededChance

SEEDS = 150
STEPS = 80


class ShareHistory(RuleBasedStateMachine):
    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.world = QueueWorld(DrawnChance(data))

    @rule(data=st.data(), action=st.sampled_from(QueueWorld.ACTIONS))
    def something_happens(self, data: st.DataObject, action: str) -> None:
        self.world.act(action, DrawnChance(data))

    @invariant()
    def model_and_partition_agree(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain()


ShareHistory.TestCase.settings = hypothesis_settings(max_examples=100, stateful_step_count=40, deadline=None)
TestShareHistory = ShareHistory.TestCase


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history_of_a_seed_loses_and_doubles_nothing(seed: int) -> None:
    chance = SeededChance(seed)
    world = QueueWorld(chance)
    for _ in range(STEPS):
        world.act(chance.one_of(QueueWorld.ACTIONS), chance)
        world.check()
    world.drain()
