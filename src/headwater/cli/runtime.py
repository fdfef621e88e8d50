"""The interpreter of a process that serves: event loop, thread switches, allocator and garbage collection."""

import asyncio
import ctypes
import gc
import sys

SWITCH_INTERVAL_S = 0.0005
"""A thread that computes gives the interpreter back to the event loop after this time. Python's own 5 ms would be
the latency of every request that arrives meanwhile."""

GC_THRESHOLD = 50_000
"""Objects more than before a young collection. Requests allocate without cycles, so collecting often finds nothing."""
GC_GENERATIONS = (20, 5)
"""Young collections before one of the middle generation, and middle ones before one of the oldest. More often
costs a queue with eight consumers a fifth of its throughput: its leases are many objects, none of them garbage."""
COLLECT_AFTER_PARTITIONS = 1_000
"""A partition is a hundred objects in cycles. So many deleted partitions are worth a collection of everything."""
COLLECT_SOON_S = 1.0
"""The delay of that collection: requests under way may still hold some of the objects."""


_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
MIB = 1024 * 1024
ALLOCATOR = {_M_MMAP_THRESHOLD: 64 * MIB, _M_TRIM_THRESHOLD: 128 * MIB, _M_TOP_PAD: 16 * MIB}
"""glibc gives a freed megabyte back to the kernel at once, and every request of that size pays for fresh pages: a
third of the CPU of a loaded broker, measured. It keeps up to the trim threshold instead."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, asyncio's own loop otherwise."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def tune_interpreter() -> None:
    """Call it before the broker starts: trade a little memory and CPU for even response times."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _tune_allocator()
    gc.disable()


def tune_garbage_collector() -> None:
    """Call it when the broker has started: what is there now stays, so no later collection needs to look at it.

    Not even a last collection does: it takes 15 ms, while the first client waits, to find a few hundred objects."""
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, *GC_GENERATIONS)
    gc.enable()


class DeletedTopics:
    """Runs a garbage collection when enough partitions were deleted."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._partitions = 0

    def removed(self, partitions: int) -> None:
        """A topic with so many partitions was deleted."""
        before, self._partitions = self._partitions, self._partitions + partitions
        if before < COLLECT_AFTER_PARTITIONS <= self._partitions:
            self._loop.call_later(COLLECT_SOON_S, self._collect)

    def _collect(self) -> None:
        self._partitions = 0
        gc.collect()


def _tune_allocator() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in ALLOCATOR.items():
            mallopt(option, value)
