"""Brokers that take turns on one machine: each is started on a machine that is as clean as it was for the others."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

COOL_DOWN_S = 0.5
CHUNK_BYTES = 1 << 20
TOUCHED_BYTES = 4 << 30
"""More than a turn leaves in the page cache."""


class Stoppable(Protocol):
    def stop(self) -> None: ...


Broker = TypeVar("Broker", bound=Stoppable)


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
    times the write into it (measured: 0.4 against 4 GB/s), and would be paid by whoever's turn comes first."""
    chunk = bytes(CHUNK_BYTES)
    with tempfile.TemporaryFile() as file:
        for _ in range(size_bytes // CHUNK_BYTES):
            file.write(chunk)


def rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]
