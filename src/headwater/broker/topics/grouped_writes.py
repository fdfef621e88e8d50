"""Many small metadata transactions as few larger ones.

A node that takes over thousands of partitions, or has to open new segments for all of them, writes as many heads. Each
is a compare-and-set of its own; those that are asked for while others are under way go together in one transaction. If
one comparison of a group fails, the group has no effect, and each is tried by itself: a write fails
for its own conditions only.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.metadata.store import Condition, MetaStore, Operation, Put, Txn, Unavailable, Unknown

MAX_OPERATIONS = 96
MAX_BYTES = 256 * 1024
AT_ONCE = 4
"""Groups that are under way at the same time."""


@dataclass(slots=True)
class _Write:
    conditions: Sequence[Condition]
    operations: Sequence[Operation]
    done: "asyncio.Future[Txn]"

    @property
    def size(self) -> int:
        return max(len(self.conditions), len(self.operations))

    @property
    def size_bytes(self) -> int:
        return sum(len(each.value) for each in self.operations if isinstance(each, Put))


class GroupedWrites:
    def __init__(self, metadata: MetaStore, spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]) -> None:
        self._metadata = metadata
        self._spawn = spawn
        self._waiting: deque[_Write] = deque()
        self._under_way = 0

    async def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn:
        """As `MetaStore.txn`: all or nothing for these operations, whatever they travel with."""
        write = _Write(conditions, operations, asyncio.get_running_loop().create_future())
        self._waiting.append(write)
        if self._under_way < AT_ONCE:
            self._under_way += 1
            self._spawn(self._work())
        return await write.done

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._write(self._take())
        finally:
            self._under_way -= 1

    def _take(self) -> list[_Write]:
        group = [self._waiting.popleft()]
        size, size_bytes = group[0].size, group[0].size_bytes
        while self._waiting:
            size += self._waiting[0].size
            size_bytes += self._waiting[0].size_bytes
            if size > MAX_OPERATIONS or size_bytes > MAX_BYTES:
                break
            group.append(self._waiting.popleft())
        return group

    async def _write(self, group: list[_Write]) -> None:
        try:
            txn = await self._metadata.txn(
                [condition for write in group for condition in write.conditions],
                [operation for write in group for operation in write.operations],
            )
        except (Unavailable, Unknown) as error:
            for write in group:
                if not write.done.done():
                    write.done.set_exception(type(error)(str(error)))
            return
        except BaseException:
            for write in group:
                write.done.cancel()
            raise
        if not txn.ok and len(group) > 1:
            for write in group:
                await self._write([write])
            return
        for write in group:
            if not write.done.done():
                write.done.set_result(txn)
