"""Waiting for what is about to happen: `eventually` blocks the thread, `until` awaits on the test's event loop.

Both look often, and give up after a minute: a busy machine is slow and not wrong. How long it took is never judged.

That something does not happen is best shown by something later that does. Where nothing later can be seen, a test waits
for `a_while`, or until something `rests`: on a busy machine that may let it pass wrongly, and never fail wrongly."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
FOREVER_MS = 600_000
"""A time to wait that no test lasts: what is answered was woken by something else."""
A_WHILE_S = 0.1
LOOPS = 50
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


def gathered(poll: Callable[[], Iterable[T]], count: int, *, patience_s: float = PATIENCE_S) -> list[T]:
    """What `poll` gives, one call after the other, until that is `count` things at least."""
    found: list[T] = []

    def has_enough() -> bool:
        found.extend(poll())
        return len(found) >= count

    if count > 0:
        eventually(has_enough, lambda: f"{len(found)} of {count} came", patience_s=patience_s)
    return found


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


async def tasks_run() -> None:
    """All tasks of this event loop run as far as they can without a clock, a thread or a socket."""
    for _ in range(LOOPS):
        await asyncio.sleep(0)


async def a_while(longer_than_s: float = 0.0) -> None:
    """`longer_than_s` is a time after which something would happen that must not."""
    await asyncio.sleep(longer_than_s + A_WHILE_S)


def blocks_for_a_while() -> None:
    time.sleep(A_WHILE_S)


async def rests(look: Callable[[], T]) -> T:
    """What `look` returns, when it has returned the same for a while."""
    seen = look()
    while True:
        await a_while()
        if seen == (seen := look()):
            return seen


def _in_vain(claim: str | Callable[[], object], patience_s: float) -> str:
    return f"not within {patience_s:.0f} s: {claim() if callable(claim) else claim}"
