"""The metrics, groups and segments pages of the broker in this process, for the gateway beside it. They are made on the
broker's event loop, and are there even if the broker has no metrics address."""

import asyncio

from headwater.broker.metrics.metrics_page import metrics_text
from headwater.broker.server import Broker
from headwater.metadata.store import Unavailable, Unknown


class LocalBrokerPages:
    """Create it on the broker's event loop; `get` is called on the gateway's, which ends before the broker does."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._one_page_at_a_time = asyncio.Lock()

    async def get(self, page: str, **parameters: str) -> bytes | None:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._page(page, parameters), self._loop))

    async def _page(self, page: str, parameters: dict[str, str]) -> bytes | None:
        """On the broker's loop."""
        async with self._one_page_at_a_time:
            return await self._made(page, parameters)

    async def _made(self, page: str, parameters: dict[str, str]) -> bytes | None:
        match page:
            case "metrics":
                return await metrics_text(self._broker.metrics)
            case "groups":
                return self._broker.groups_page(parameters.get("group"))
            case "segments":
                try:
                    return await self._broker.segments_page(parameters["topic"])
                except (Unavailable, Unknown) as error:
                    raise OSError(f"the metadata store does not answer: {error}") from None
        return None
