"""The production machines of replication in a simulated cluster. A seed that fails is shown by
`python -m headwater.testing.simulation --trace SEED`."""

import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from headwater.testing.simulation.__main__ import app
from headwater.testing.simulation.campaign import run_campaign, run_seed, total
from headwater.testing.simulation.mutants import MUTANTS
from headwater.testing.simulation.simulation import Simulation
from headwater.testing.simulation.swarm import CHOICES, FAULTS, THEMES
from tests.support.effort import amount

SEEDS_PER_TEST = 50
SEEDS_TO_CATCH = 400


@pytest.mark.parametrize("first", range(1, amount(301, 51), SEEDS_PER_TEST))
def test_every_invariant_holds_whatever_fails(first: int) -> None:
    result = total(run_campaign(range(first, first + SEEDS_PER_TEST), jobs=1))
    assert [f"seed {failure.seed}: {failure.message}" for failure in result.failures] == []
    assert result.counts["acknowledged"] > 10 * SEEDS_PER_TEST, "a simulation in which nothing works shows nothing"
    assert result.counts["elections"] > SEEDS_PER_TEST


def test_every_kind_of_fault_and_of_answer_to_it_happens() -> None:
    counts = total(run_campaign(range(1, 61), jobs=1)).counts
    answers = ("rolls", "copies", "FinishCopy", "collected replicas", "compactions", "segments retired")
    assert [name for name in (*FAULTS, *answers) if not counts[name]] == []


@pytest.mark.parametrize("name", list(MUTANTS))
def test_a_mutant_is_caught(name: str) -> None:
    theme = MUTANTS[name].theme
    caught = next((seed for seed in range(1, SEEDS_TO_CATCH) if run_seed(seed, name, theme).failures), None)
    assert caught is not None, f"{MUTANTS[name].error}, and nobody notices"
    assert run_seed(caught, None, theme).failures == (), "the same seed is fine without the mutant"


def test_a_seed_gives_the_same_run_again() -> None:
    assert _trace_hash(7) == _trace_hash(7)
    assert _trace_hash(7) != _trace_hash(8)


def test_a_run_does_not_depend_on_the_hashes_of_strings() -> None:
    script = (
        "from headwater.testing.simulation.simulation import Simulation\n"
        "for seed in range(1, 6):\n"
        "    simulation = Simulation(seed); simulation.run(); print(simulation.world.trace_hash())\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0].split())) == 5


def test_themes_are_made_of_what_exists() -> None:
    assert [name for theme in THEMES.values() for name in theme.choices if name not in CHOICES] == []
    assert [fault for theme in THEMES.values() for fault in theme.faults if fault not in FAULTS] == []


def test_the_command_shows_the_seed_and_what_led_to_a_violation() -> None:
    result = CliRunner().invoke(app, ["--seeds", "20", "--jobs", "1", "--mutant", "publish_unguarded"])
    assert result.exit_code == 1
    assert "violates I" in result.output
    assert "takes over" in result.output


def test_the_command_counts_what_happened() -> None:
    result = CliRunner().invoke(app, ["--seeds", "3", "--jobs", "1"])
    assert result.exit_code == 0
    assert "acknowledged" in result.output
    assert "3 seeds" in result.output
    assert "0 violations" in result.output


def test_the_command_knows_its_mutants() -> None:
    assert CliRunner().invoke(app, ["--mutant", "no_such_rule"]).exit_code == 2


def _trace_hash(seed: int) -> str:
    simulation = Simulation(seed)
    simulation.run()
    assert simulation.world.trace, "something happened"
    return simulation.world.trace_hash()
