"""Brokers that take turns on one machine: each is started on a machine that is as clean as it was for the others."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

COOL_DOWN_S = 0.5
CHUNK_BYTES = 1 << 20
TOUCHED_BYTES = 4 << 30
"""More than a turn leaves in the page cache."""

Say = Callable[[str], None]


class Stoppable(Protocol):
    def stop(self) -> None: ...


Broker = TypeVar("Broker", bound=Stoppable)
Taken = TypeVar("Taken")


class Turns:
    """The turns of a run, with a bar that shows how far it is."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    def take(self, name: str, what: str, make: Callable[[], Broker], measure: Callable[[Broker, Say], Taken]) -> Taken:
        """Whatever `measure` finds of a fresh broker, which it starts itself."""

        def say(doing: str) -> None:
            self._progress.update(self._task, description=f"{what}, {name}: {doing}")

        say("starting")
        with fresh(make) as broker:
            taken = measure(broker, say)
        self._progress.advance(self._task)
        return taken

    def rounds(
        self,
        what: str,
        count: int,
        makers: Mapping[str, Callable[[], Broker]],
        measure: Callable[[Broker, Say], Taken],
    ) -> list[dict[str, Taken]]:
        """Every broker once a round, in an order that rotates. By round, then by broker in the order given."""
        found = []
        for number in range(count if makers else 0):
            title, order = f"{what} {number + 1} of {count}", rotated(list(makers), number)
            taken = {name: self.take(name, title, makers[name], measure) for name in order}
            found.append({name: taken[name] for name in makers})
        return found


@contextmanager
def taking_turns(turns: int, console: Console) -> Iterator[Turns]:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        yield Turns(progress, progress.add_task("", total=turns))


@contextmanager
def fresh(make: Callable[[], Broker]) -> Iterator[Broker]:
    """A broker that has not been started yet, and is gone with its data afterwards."""
    touch_memory(TOUCHED_BYTES)
    os.sync()  # what the last broker left in the page cache is not this one's burden
    time.sleep(COOL_DOWN_S)
    broker = make()
    try:
        yield broker
    finally:
        broker.stop()


def touch_memory(size_bytes: int) -> None:
    """Have the machine's free memory mapped before a turn. On a virtual machine the first touch of a page can cost ten
    times the write into it (measured: 0.4 against 4 GB/s), and would be paid by the broker whose turn comes first."""
    chunk = bytes(CHUNK_BYTES)
    with tempfile.TemporaryFile() as file:
        for _ in range(size_bytes // CHUNK_BYTES):
            file.write(chunk)


def rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]
