"""The checkers accept every run that keeps its promises, and miss none of the ways to break one."""

from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headwater.testing.oracles.checkers import History, check
from tests.testing.oracles.mutations import MUTATIONS, Mutation
from tests.testing.oracles.simulated_run import SimulatedRun

SEEDS = st.integers(0, (1 << 32) - 1)


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_a_run_that_keeps_every_promise_has_no_violations(seed: int) -> None:
    assert check(SimulatedRun(seed).history()) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_a_broken_promise_is_found_and_named(mutation: Mutation, seed: int) -> None:
    broken = mutation(list(SimulatedRun(seed).history()), Random(seed))
    assume(broken is not None)
    assert broken is not None
    events, kinds = broken
    found = {violation.kind for violation in check(History(events))}
    assert found & kinds, f"{mutation.__name__} was taken for {found or 'nothing'}"
