"""An internal topic that keeps the state of a coordinator. It comes into being when the first request needs it."""

import asyncio
from collections.abc import Callable, Sequence

from headwater.broker.catalog import Catalog, Topic
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError

CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(100 * 1024 * 1024)}


class StateTopic:
    def __init__(
        self,
        catalog: Catalog,
        name: str,
        partitions: int,
        take_up: Callable[[Topic], "Sequence[asyncio.Task[None]]"],
    ) -> None:
        """`take_up` is called once, with the topic, and returns the tasks that read it."""
        self._catalog = catalog
        self._name = name
        self._partitions = partitions
        self._take_up = take_up
        self._creating = asyncio.Lock()
        self._is_taken_up = False

    def find(self) -> None:
        """At a start: take up the topic if there is one. Reading it goes on in the background."""
        topic = self._catalog.find(self._name)
        if topic is not None:
            self._is_taken_up = True
            self._take_up(topic)

    async def ensure(self) -> None:
        """Make sure that there is a place to keep state in. Raises RequestError."""
        async with self._creating:
            if self._is_taken_up:
                return
            topic = self._catalog.find(self._name) or await self._create()
            self._is_taken_up = True
            if reading := self._take_up(topic):
                await asyncio.wait(reading)  # there is nothing to read yet: whoever asked first is served

    async def _create(self) -> Topic:
        try:
            topic = await self._catalog.create(self._name, self._partitions, CONFIG)
        except (RequestError, Unavailable, Unknown) as error:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        assert topic is not None, "a topic that was not only validated"
        return topic
