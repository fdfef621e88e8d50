"""Requests that are repeated while the cluster is not ready for them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headwater.gateway.kafka.errors import ClusterNotReady

PATIENCE_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5

T = TypeVar("T")


async def retry_until_ready(ask: Callable[[], Awaitable[T]], patience_s: float = PATIENCE_S) -> T:
    """Only for requests that read. Raises ClusterNotReady when the time is up, and other failures at once."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + patience_s
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await ask()
        except ClusterNotReady:
            if loop.time() + pause_s > until_s:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
