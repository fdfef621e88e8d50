"""The machine's file system, with a watch on it: how long each flush to the device takes.

That is the figure behind every acknowledgement with `durability=sync`, and the first one to look at when those are
slow. The store flushes from more than one thread, so the observer is called from any of them, one at a time.
"""

import threading
import time
from collections.abc import Callable

from headwater.storage.files import SystemFiles


class TimedFiles(SystemFiles):
    def __init__(self, on_flush: Callable[[float], None]) -> None:
        self._on_flush = on_flush
        self._one_at_a_time = threading.Lock()

    def sync_data(self, fd: int) -> None:
        began = time.perf_counter()
        super().sync_data(fd)
        elapsed_s = time.perf_counter() - began
        with self._one_at_a_time:
            self._on_flush(elapsed_s)
