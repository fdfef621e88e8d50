"""Processes that stop for a while."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

STOPPED: Final = frozenset("TtZX")
WAIT_S: Final = 10.0


def pause(pid: int) -> None:
    """SIGSTOP: its connections stay open, without answers. Returns when none of its threads runs any more; until
    then one may still have answered, where /proc tells."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + WAIT_S
    while not STOPPED.issuperset(_thread_states(pid)) and time.monotonic() < deadline:
        time.sleep(0.001)


def _thread_states(pid: int) -> Iterator[str]:
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            yield thread.read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue  # it has ended
