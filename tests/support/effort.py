"""How much a run of the suite repeats. `make test` shows each behaviour once; `make test-long` shows it with every
client, seed, kill and example there is. docs/reliability.md lists what is left to the long run."""

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

IS_LONG = os.environ.get("HEADWATER_TEST_LONG", "") not in ("", "0")

only_long = pytest.mark.slow
"""For a test, or a parameter, that repeats what others show: it runs in the long suite alone."""


def amount(long: int, short: int) -> int:
    """How often a test repeats: examples, seeds, kills, records."""
    return long if IS_LONG else short


def in_long(*values: object) -> "ParameterSet":
    """One set of parameters that only the long suite tries."""
    return pytest.param(*values, marks=only_long)
