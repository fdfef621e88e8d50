"""What the parts of the gateway share."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from headwater.gateway.config import GatewayConfig

P = ParamSpec("P")
T = TypeVar("T")


class Context:
    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self._pool = ThreadPoolExecutor(config.threads, thread_name_prefix="gateway")

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """For calls that block; no more of them at once than there are threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: call(*args, **kwargs))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
