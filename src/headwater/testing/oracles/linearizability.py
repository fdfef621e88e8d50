"""Was there an order? A checker for short concurrent histories, after Wing and Gong, with a memo of dead ends (Lowe).

A history is linearizable when its calls can be put in one order that a single, sequential object explains, and in which
no call stands before one that had ended when it began. The search is exponential in how many calls overlap, not in
how many there are: keep the clients few.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

StateT = TypeVar("StateT", bound=Hashable)
CallT = TypeVar("CallT")

MAX_CALLS = 2_000


@dataclass(frozen=True, slots=True)
class Timed(Generic[CallT]):
    """One call as its client saw it. `ended` is infinite when the outcome was never learnt."""

    call: CallT
    began: float
    ended: float = math.inf

    @property
    def is_open(self) -> bool:
        return self.ended == math.inf


def is_linearizable(
    history: Sequence[Timed[CallT]], initial: StateT, step: Callable[[StateT, CallT], StateT | None]
) -> bool:
    """`step` gives the state after a call, or None when the call cannot have ended that way in this state.

    A call without an outcome may have happened at any time after it began, or never."""
    assert len(history) <= MAX_CALLS, f"a history of {len(history)} calls is too long to search"
    calls = sorted(history, key=lambda timed: timed.began)
    must_happen = sum(1 << index for index, timed in enumerate(calls) if not timed.is_open)
    dead_ends: set[tuple[int, StateT]] = set()
    # Depth first, on a list of our own: the recursion would be as deep as the history is long.
    to_try: list[tuple[int, StateT]] = [(0, initial)]
    while to_try:
        done, state = to_try.pop()
        if done & must_happen == must_happen:
            return True
        if (done, state) in dead_ends:
            continue
        dead_ends.add((done, state))
        for index in _candidates(calls, done):
            after = step(state, calls[index].call)
            if after is not None:
                to_try.append((done | 1 << index, after))
    return False


def _candidates(calls: Sequence[Timed[CallT]], done: int) -> list[int]:
    """The calls that may come next: calls that began before any other that is left had ended."""
    first_end = math.inf
    candidates: list[int] = []
    for index, timed in enumerate(calls):
        if done >> index & 1:
            continue
        if timed.began > first_end:
            break
        candidates.append(index)
        first_end = min(first_end, timed.ended)
    return candidates


@dataclass(frozen=True, slots=True)
class RegisterRead:
    value: int


@dataclass(frozen=True, slots=True)
class RegisterWrite:
    value: int


@dataclass(frozen=True, slots=True)
class RegisterCompareAndSet:
    expected: int
    value: int
    succeeded: bool | None
    """None when the outcome was never learnt."""


RegisterCall: TypeAlias = RegisterRead | RegisterWrite | RegisterCompareAndSet


def register(state: int, call: RegisterCall) -> int | None:
    """The step of one integer that can be read, written, and compared and set."""
    match call:
        case RegisterRead(value):
            return state if value == state else None
        case RegisterWrite(value):
            return value
        case RegisterCompareAndSet(expected, value, succeeded):
            matches = state == expected
            if succeeded is not None and succeeded != matches:
                return None
            return value if matches else state
