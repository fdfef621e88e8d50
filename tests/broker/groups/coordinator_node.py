"""A group coordinator over memory files, and requests to it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headwater.broker.groups.group_coordinator import GroupCoordinator
from headwater.broker.log.node_ports import NodePorts, OneStore
from headwater.broker.log.tail_cache import TailCache
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.topics.catalog import Catalog
from headwater.groups.effects import JoinAnswer
from headwater.groups.members import MemberProtocol
from headwater.groups.requests import CommitRequest, JoinRequest, OffsetToCommit, SyncRequest
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId, SegmentId, StoreId, segment_id
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from tests.support.eventually import until

SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"
OPTIONS = StoreOptions(runs_inline=True, reserve_bytes=0, journal_file_bytes=1024 * 1024)


class Node:
    """What a broker gives its coordinator, without the broker."""

    def __init__(self, tmp_path: Path, **config: Any) -> None:
        self.clock = ManualClock()
        self.files = MemoryFiles()
        self.tmp_path = tmp_path
        self.config = BrokerConfig.load(None, offsets_topic_partitions=2, **config)
        self._segments = 0

    @asynccontextmanager
    async def run(self) -> AsyncIterator[GroupCoordinator]:
        store = await SegmentStore.open(Path("/store"), files=self.files, options=OPTIONS)
        metadata = await SqliteMetaStore.open(str(self.tmp_path / "metadata.db"))
        tasks: set[asyncio.Task[None]] = set()

        def spawn(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            task = asyncio.get_running_loop().create_task(coroutine)
            tasks.add(task)
            return task

        def choose(
            count: int, avoid: frozenset[StoreId], salt: SegmentId, preferred: frozenset[NodeId] = frozenset()
        ) -> tuple[StoreId, ...]:
            return () if store.store_id in avoid else (store.store_id,)

        cache = TailCache(1024 * 1024)
        self.ports = NodePorts(
            node_id=1,
            store=store,
            stores=OneStore(store),
            choose=choose,
            clock=self.clock,
            tail_cache=cache,
            spawn=spawn,
            new_segment_id=self._new_segment,
        )
        self.catalog = Catalog(metadata, self.ports, self.config.topic_defaults, lambda count: [1] * count)
        await self.catalog.load(is_alone=True)
        if self.catalog.find("orders") is None:
            await self.catalog.changes.create("orders", 2, {})
        coordinator = GroupCoordinator(self.catalog, self.config, self.clock, spawn)
        coordinator.start()
        try:
            yield coordinator
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await store.close()
            await metadata.close()
            assert [error for error in results if isinstance(error, Exception)] == []

    def _new_segment(self) -> Any:
        self._segments += 1
        return segment_id(self.clock.now_ms(), self._segments)


def join_request(member_id: str = "", instance_id: str | None = None) -> JoinRequest:
    protocols = (MemberProtocol("range", SUBSCRIPTION),)
    return JoinRequest(member_id, instance_id, "app", "/test", 10_000, 60_000, "consumer", protocols, False)


async def stable(coordinator: GroupCoordinator, group_id: str = "g") -> JoinAnswer:
    joined = await coordinator.join(group_id, join_request())
    await coordinator.sync(group_id, sync_request(joined, {joined.member_id: b"everything"}))
    return joined


def sync_request(joined: JoinAnswer, assignments: dict[str, bytes]) -> SyncRequest:
    return SyncRequest(joined.member_id, None, joined.generation, None, None, assignments)


def commit_request(*offsets: tuple[str, int, int], joined: JoinAnswer | None = None) -> CommitRequest:
    each = tuple(OffsetToCommit(topic, partition, offset, -1, "") for topic, partition, offset in offsets)
    if joined is None:
        return CommitRequest("", None, -1, each)
    return CommitRequest(joined.member_id, None, joined.generation, each)


async def committed(coordinator: GroupCoordinator, group_id: str, topic: str, partition: int) -> int:
    (found,) = await coordinator.committed(group_id, [(topic, partition)])
    return found.committed.offset if found.committed is not None else -1


async def refusal(request: Coroutine[Any, Any, Any]) -> ErrorCode:
    try:
        await request
    except RequestError as error:
        return error.code
    return ErrorCode.NONE


async def ready(coordinator: GroupCoordinator) -> None:
    await coordinator.ensure_ready()
    await until(coordinator.is_loaded)
