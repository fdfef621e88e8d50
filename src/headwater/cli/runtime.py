"""How a broker's process is set up around its event loop."""

import asyncio
import gc
import sys

SWITCH_INTERVAL_S = 0.0005
"""A thread that computes gives the interpreter back to the event loop after this time. Python's own 5 ms would be
the latency of every request that arrives meanwhile."""

GC_THRESHOLD = 50_000
"""Allocations before a young collection. Requests allocate without cycles, so collecting often finds nothing."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, asyncio's own loop otherwise."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def tune_interpreter() -> None:
    """Before the broker starts: trade a little memory and CPU for even response times, and start quickly."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.disable()
    # Where hypothesis is installed, kio imports it, to offer values for tests. That alone takes 0.2 s.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]


def settle_garbage_collector() -> None:
    """After the broker has started: what is alive now stays, so no later collection needs to look at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 50)
    gc.enable()
