"""Waiting for what is about to happen: `eventually` blocks the thread, `until` awaits on the test's event loop.

Both look often, and give up after a minute: a busy machine is slow and not wrong. How long it took is never judged."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
LOOK_S = 0.02
LOOK_IN_PROCESS_S = 0.002
"""Between looks at objects of this process, which cost next to nothing."""


def eventually(
    look: Callable[[], T | None], claim: str | Callable[[], object] = "", *, patience_s: float = PATIENCE_S
) -> T:
    """What `look` returns, as soon as that is neither false nor empty. `claim` says what is waited for."""
    deadline_s = time.monotonic() + patience_s
    while not (seen := look()):
        assert time.monotonic() < deadline_s, _in_vain(claim, patience_s)
        time.sleep(LOOK_S)
    return seen


async def until(
    look: Callable[[], object], claim: str | Callable[[], object] = "", *, patience_s: float = PATIENCE_S
) -> None:
    """`eventually` for tests that share an event loop with what they test; `look` may be a coroutine function."""
    deadline_s = time.monotonic() + patience_s
    while True:
        seen = look()
        if isinstance(seen, Awaitable):
            seen = await seen
        if seen:
            return
        assert time.monotonic() < deadline_s, _in_vain(claim, patience_s)
        await asyncio.sleep(LOOK_IN_PROCESS_S)


def _in_vain(claim: str | Callable[[], object], patience_s: float) -> str:
    return f"not within {patience_s:.0f} s: {claim() if callable(claim) else claim}"
