"""What the parts of the gateway share: settings, bounds, and the cluster.

The cluster can be reached from `open` until `close`, which the lifespan of the server calls; a handler finds both
done.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from headwater.gateway.cluster.broker_pages import BrokerPages, PagesOverHttp
from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.bodies import Budget
from headwater.gateway.http.metrics import Metrics

if TYPE_CHECKING:
    from headwater.gateway.http.security import Guard
    from headwater.gateway.kafka.admin import Admin
    from headwater.gateway.kafka.known_topics import KnownTopics
    from headwater.gateway.kafka.producer import RecordProducer
    from headwater.gateway.kafka.reading import Reader
    from headwater.gateway.push.dispatcher import Dispatcher
    from headwater.gateway.records.idempotent_requests import Memos
    from headwater.gateway.registry.registrar import Registrar
    from headwater.gateway.subscriptions.serving import Serving

P = ParamSpec("P")
T = TypeVar("T")


class ValueDecoder(Protocol):
    """What the registry gives to those who show records."""

    async def decode(self, topic: str, value: bytes) -> tuple[Any, dict[str, Any]] | None:
        """The value as JSON and what is known of its schema; None if it is not in the registry's wire format."""


class Context:
    guard: "Guard"
    admin: "Admin"
    topics: "KnownTopics"
    producer: "RecordProducer"
    reader: "Reader"
    memos: "Memos"
    registrar: "Registrar"
    subscriptions: "Serving"
    pushing: "Dispatcher | None" = None

    def __init__(self, config: GatewayConfig, pages: BrokerPages | None = None) -> None:
        self.config = config
        self.pages = pages or (PagesOverHttp(config.broker_pages) if config.broker_pages is not None else None)
        """None if there is no broker to ask."""
        self.budget = Budget(config.max_buffered_bytes)
        self.metrics = Metrics()
        self.value_decoder: ValueDecoder | None = None
        self._pool = ThreadPoolExecutor(config.threads, thread_name_prefix="gateway")

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """For calls that block; no more of them at once than there are threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: call(*args, **kwargs))

    def open(self) -> None:
        """Make the clients. Nobody connects before there is something to ask: a cluster may come later."""
        from headwater.gateway.kafka.admin import Admin
        from headwater.gateway.kafka.known_topics import KnownTopics
        from headwater.gateway.kafka.producer import RecordProducer
        from headwater.gateway.kafka.reading import Reader
        from headwater.gateway.records.idempotent_requests import Memos

        self.admin = Admin(self.config, self.in_thread)
        self.topics = KnownTopics(self.admin)
        self.producer = RecordProducer(self.config, asyncio.get_running_loop())
        self.reader = Reader(self.config, self.admin)
        self.memos = Memos(self.config, self.admin)

    async def close(self) -> None:
        await self.topics.close()
        await self.memos.close()
        await self.reader.close()
        await self.producer.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
