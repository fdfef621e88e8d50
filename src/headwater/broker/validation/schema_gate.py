"""Requests that wait until the broker has looked at the registry again, one after another.

A schema may have been registered a moment ago, so a record is not refused before the end of the registry's log was
read. Requests that come meanwhile with records for a validated topic wait behind, so that batches keep their order.
"""

import asyncio
from types import TracebackType
from typing import Self

from headwater.broker.validation.schema_follower import SchemaFollower


class SchemaGate:
    def __init__(self, follower: SchemaFollower) -> None:
        self.follower = follower
        self._lock = asyncio.Lock()
        self._waiting = 0

    @property
    def is_busy(self) -> bool:
        return self._waiting > 0

    def queue(self) -> "SchemaQueuePosition":
        """A position behind the requests that wait already. It must be left."""
        self._waiting += 1
        return SchemaQueuePosition(self, self._lock)

    def _left(self) -> None:
        self._waiting -= 1


class SchemaQueuePosition:
    def __init__(self, gate: SchemaGate, lock: asyncio.Lock) -> None:
        self._gate = gate
        self._lock = lock
        self._has_left = False

    async def __aenter__(self) -> Self:
        await self._lock.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        self.leave()

    def leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._gate._left()
