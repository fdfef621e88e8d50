"""A history: what all clients of one run observed, in one order, to be walked as often as wanted.

The order means time: an event stands after another if it happened later. Events that overlapped may stand either way
round. A history in a file is never held in memory.
"""

import heapq
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from headwater.testing.oracles.checkers.events import BrokenHistory, Event
from headwater.testing.oracles.checkers.json_lines import Stamped, encode, read_lines

MAX_FILES = 256
"""They are all open at once."""


class History:
    """Iterating gives the events. Operation N of a violation is the N-th of them; in a single file, its line N."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        kept = tuple(events)
        self._walk: Callable[[], Iterator[Event]] = lambda: iter(kept)

    @classmethod
    def read(cls, *paths: str | os.PathLike[str]) -> "History":
        """The events of JSON lines files, one per recorder. They are read anew at each walk."""
        assert 0 < len(paths) <= MAX_FILES, f"a history has 1 to {MAX_FILES} files, not {len(paths)}"
        history = cls()
        history._walk = partial(_walk_files, [Path(path) for path in paths])
        return history

    def __iter__(self) -> Iterator[Event]:
        return self._walk()

    def write(self, path: str | os.PathLike[str]) -> None:
        """Keep the history in one file. The numbers of the events take the place of the time."""
        with Path(path).open("wb") as file:
            for number, event in enumerate(self, 1):
                file.write(encode(Stamped(number, event)))


def _walk_files(paths: list[Path]) -> Iterator[Event]:
    if len(paths) == 1:
        files = [read_lines(paths[0])]
    else:
        files = [_in_order_of_time(path) for path in paths]
    for stamped in heapq.merge(*files, key=lambda stamped: stamped.at_ns):
        yield stamped.event


def _in_order_of_time(path: Path) -> Iterator[Stamped]:
    """The lines of one file among several, which only their times put in order."""
    last_ns = 0
    for number, stamped in enumerate(read_lines(path), 1):
        if stamped.at_ns == 0 or stamped.at_ns < last_ns:
            raise BrokenHistory(f"{path}:{number}: to be merged with other files, each line needs an at_ns, in order")
        last_ns = stamped.at_ns
        yield stamped
