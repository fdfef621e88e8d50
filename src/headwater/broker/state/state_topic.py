"""An internal topic that keeps the state of a coordinator. It is created when the first request needs it.

Each of its partitions is a log that its leader reads when the lead begins, and forgets when it ends. A key (a group, a
transactional id) belongs to one of them, by a hash, for ever: the number of partitions never changes.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from headwater.broker.log.partition import Partition
from headwater.broker.state.record_log import Spawn
from headwater.broker.state.shard_log import ShardLog
from headwater.broker.topics.catalog import Catalog
from headwater.metadata.store import Unavailable, Unknown
from headwater.model.errors import ErrorCode, RequestError

CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(100 * 1024 * 1024)}


class ReplayedLog(Protocol):
    @property
    def shard_log(self) -> ShardLog[Any]: ...


L = TypeVar("L", bound=ReplayedLog)


class StateTopic(Generic[L]):
    def __init__(
        self, catalog: Catalog, name: str, partitions: int, open_log: Callable[[Partition], L], spawn: Spawn
    ) -> None:
        self._catalog = catalog
        self._name = name
        self._partitions = partitions
        self._open_log = open_log
        self._spawn = spawn
        self._creating = asyncio.Lock()
        self._logs: dict[int, L] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Take up what is led, now and later. Reading goes on in the background."""
        for partition in self._catalog.partitions():
            self._led(partition)
        self._catalog.leadership.on_led.append(self._led)
        self._catalog.leadership.on_lost.append(self._lost)

    @property
    def exists(self) -> bool:
        return self._catalog.find(self._name) is not None

    def __iter__(self) -> Iterator[L]:
        """The logs that are kept here."""
        return iter([self._logs[index] for index in sorted(self._logs)])

    def index(self, key: str) -> int:
        """Which partition a key belongs to. Only of a topic that exists."""
        return zlib.crc32(key.encode()) % self._catalog.topic(self._name).partition_count

    def log(self, key: str) -> L:
        """The log that a key belongs to. Raises RequestError NOT_COORDINATOR if another node keeps it."""
        return self.at(self.index(key))

    def keeps(self, key: str) -> bool:
        """Whether the log that a key belongs to is kept here."""
        return self.is_kept(self.index(key))

    def is_kept(self, index: int) -> bool:
        return index in self._logs

    def at(self, index: int) -> L:
        log = self._logs.get(index)
        if log is None:
            raise RequestError(ErrorCode.NOT_COORDINATOR, self._catalog.topic(self._name).not_led(index))
        return log

    async def ensure(self) -> None:
        """Create the topic unless it exists. Raises RequestError."""
        if self.exists and not self._creating.locked():
            return
        async with self._creating:  # a topic that is being made is known before it is led
            if not self.exists:
                await self._create()
            if self._loading:  # there is nothing to read yet: the request that created it is served
                await asyncio.wait(list(self._loading.values()))

    async def _create(self) -> None:
        try:
            await self._catalog.changes.create_internal(self._name, self._partitions, CONFIG)
        except (RequestError, Unavailable, Unknown) as error:
            if isinstance(error, RequestError) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    def _led(self, partition: Partition) -> None:
        if partition.topic_name != self._name:
            return
        index = partition.id.index
        log = self._logs[index] = self._open_log(partition)
        task = self._loading[index] = self._spawn(log.shard_log.load())
        task.add_done_callback(lambda _: self._loaded(index, task))

    def _loaded(self, index: int, task: "asyncio.Task[None]") -> None:
        if self._loading.get(index) is task:
            del self._loading[index]

    def _lost(self, partition: Partition) -> None:
        log = self._logs.pop(partition.id.index, None) if partition.topic_name == self._name else None
        if log is None:
            return
        loading = self._loading.pop(partition.id.index, None)
        if loading is not None:
            loading.cancel()
        message = f"Another node leads {self._name} {partition.id.index} now."
        log.shard_log.close(RequestError(ErrorCode.NOT_COORDINATOR, message))
