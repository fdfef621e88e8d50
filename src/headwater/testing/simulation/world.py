"""Virtual time: a heap of what will happen, one source of chance, and a record of what did.

Everything in a simulation is a callback in this heap. Two events of the same moment happen in the order in which they
were planned, so a seed gives the same run on every machine and under every PYTHONHASHSEED, as long as no code iterates
over a set.
"""

import hashlib
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any, TypeAlias

MAX_EVENTS = 300_000
"""Of one run. An ordinary one has some ten thousand; a machine that answers itself without end has more."""

Action: TypeAlias = Callable[..., None]
TraceEntry: TypeAlias = tuple[float, str, str, tuple[Any, ...]]


class Runaway(Exception):
    """More events than any sound run has."""


class World:
    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self.trace: list[TraceEntry] = []
        self.counts: Counter[str] = Counter()
        self.events = 0
        self._heap: list[tuple[float, int, Action, tuple[Any, ...]]] = []
        self._order = count()

    def after(self, delay_s: float, action: Action, *arguments: Any) -> None:
        heappush(self._heap, (self.now + delay_s, next(self._order), action, arguments))

    def run_until(self, end: float, is_done: Callable[[], bool] | None = None) -> None:
        """Let everything happen that is due before `end`, or until it is done."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, action, arguments = heappop(heap)
            action(*arguments)
            self.events += 1
            if is_done is not None and is_done():
                return
            if self.events > MAX_EVENTS:
                raise Runaway(f"more than {MAX_EVENTS} events by {self.now:.3f} s")
        self.now = end

    def note(self, actor: str, what: str, *details: Any) -> None:
        self.trace.append((self.now, actor, what, details))

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def trace_hash(self) -> str:
        digest = hashlib.sha256()
        for entry in self.trace:
            digest.update(repr(entry).encode())
        return digest.hexdigest()
