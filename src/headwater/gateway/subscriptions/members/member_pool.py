"""Members of groups that live in this gateway: one joins when a request asks for records, and leaves when no request
has for a while.

All clients share the member of a subscription: what one of them pulled, another may acknowledge. A gateway that stops
leaves its groups.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Self, TypeAlias

from headwater.client.asyncio_cluster import AsyncioCluster
from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.problems import too_busy
from headwater.gateway.subscriptions.members.queue_member import QueueMember
from headwater.gateway.subscriptions.members.stream_member import StreamMember

MAX_QUEUE_MEMBERS = 500
MAX_STREAM_MEMBERS = 64
"""Each has threads."""
IDLE_S = 30.0
LOOK_S = 1.0
STOP_S = 10.0

Member: TypeAlias = QueueMember | StreamMember
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _LivingMember:
    member: Member
    task: asyncio.Task[None]


class MemberPool:
    def __init__(self, config: GatewayConfig, cluster: AsyncioCluster, tasks: asyncio.TaskGroup) -> None:
        self._config = config
        self._cluster = cluster
        self._tasks = tasks
        self._living: dict[str, _LivingMember] = {}

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, config: GatewayConfig, cluster: AsyncioCluster) -> AsyncIterator[Self]:
        """Members can join while the context lasts; all have left after it."""
        async with asyncio.TaskGroup() as tasks:
            pool = cls(config, cluster, tasks)
            looking = tasks.create_task(pool._end_idle())
            try:
                yield pool
            finally:
                looking.cancel()
                for living in pool._living.values():
                    living.task.cancel()

    def get(self, name: str) -> Member | None:
        """The member of this subscription, if there is one."""
        living = self._living.get(name)
        return living.member if living is not None and not living.task.done() else None

    def join(self, name: str, topic: str, *, is_queue: bool) -> Member:
        """The member of this subscription, or a new one. Raises Problem."""
        member = self.get(name)
        if member is not None and member.topic == topic:
            return member
        kind, limit = (QueueMember, MAX_QUEUE_MEMBERS) if is_queue else (StreamMember, MAX_STREAM_MEMBERS)
        if sum(isinstance(living.member, kind) for living in self._living.values()) >= limit:
            raise too_busy(f"{limit} subscriptions of this kind are read here at this moment.", 5)
        if member is not None:
            self._living[name].task.cancel()  # of a deleted subscription of this name to another topic
        member = self.make(name, topic, is_queue=is_queue)
        self._living[name] = _LivingMember(member, self._tasks.create_task(self._live(name, member)))
        return member

    def make(self, name: str, topic: str, *, is_queue: bool) -> Member:
        """A member outside of the pool, which the caller runs itself."""
        if is_queue:
            return QueueMember(self._cluster, name, topic)
        return StreamMember(self._config, name, topic)

    def held(self, name: str) -> int:
        """Records that are leased for the member of a queue."""
        member = self.get(name)
        return member.held if isinstance(member, QueueMember) else 0

    async def leave(self, name: str) -> None:
        """When this returns, the member has left its group."""
        living = self._living.get(name)
        if living is not None:
            living.task.cancel()
            await asyncio.wait([living.task], timeout=STOP_S)

    async def _live(self, name: str, member: Member) -> None:
        try:
            await member.run()
        except Exception:
            log.exception("member_failed group=%s", name)
        finally:
            if name in self._living and self._living[name].member is member:
                del self._living[name]

    async def _end_idle(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for living in list(self._living.values()):
                is_idle = time.monotonic() - living.member.idle_since_s > IDLE_S
                if is_idle and not living.member.is_busy:
                    living.task.cancel()
