"""Members of groups that live in this gateway: made when somebody asks for records, gone when nobody has for a while.

There is one for each subscription, whoever asks: what a client holds, another may acknowledge. A gateway that ends
leaves its groups.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TypeAlias

from headwater.gateway.config import GatewayConfig
from headwater.gateway.http.problems import too_busy
from headwater.gateway.kafka.brokers import Brokers
from headwater.gateway.subscriptions.members.share_member import ShareMember
from headwater.gateway.subscriptions.members.stream_member import StreamMember

MAX_QUEUE_MEMBERS = 500
MAX_STREAM_MEMBERS = 64
"""Each has threads."""
IDLE_S = 30.0
LOOK_S = 1.0
STOP_S = 10.0

Member: TypeAlias = ShareMember | StreamMember
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Living:
    member: Member
    task: asyncio.Task[None]


class Members:
    def __init__(self, config: GatewayConfig, brokers: Brokers) -> None:
        self._config = config
        self._brokers = brokers
        self._living: dict[str, _Living] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            looking = tasks.create_task(self._look())
            try:
                yield
            finally:
                self._tasks = None
                looking.cancel()
                for living in self._living.values():
                    living.task.cancel()

    def get(self, name: str) -> Member | None:
        """The one that lives."""
        living = self._living.get(name)
        return living.member if living is not None and not living.task.done() else None

    def join(self, name: str, topic: str, *, is_queue: bool) -> Member:
        """The one that lives, or a new one. Raises Problem."""
        member = self.get(name)
        if member is not None and member.topic == topic:
            return member
        assert self._tasks is not None, "the gateway runs"
        kind, limit = (ShareMember, MAX_QUEUE_MEMBERS) if is_queue else (StreamMember, MAX_STREAM_MEMBERS)
        if sum(isinstance(living.member, kind) for living in self._living.values()) >= limit:
            raise too_busy(f"{limit} subscriptions of this kind are read here at this moment.", 5)
        if member is not None:
            self._living[name].task.cancel()  # of a subscription of this name to another topic, which is gone
        member = self.make(name, topic, is_queue=is_queue)
        self._living[name] = _Living(member, self._tasks.create_task(self._live(name, member)))
        return member

    def make(self, name: str, topic: str, *, is_queue: bool) -> Member:
        """One of its own, for somebody who runs it."""
        if is_queue:
            return ShareMember(self._brokers, name, topic)
        return StreamMember(self._config, name, topic)

    def held(self, name: str) -> int:
        member = self.get(name)
        return member.held if isinstance(member, ShareMember) else 0

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

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for living in list(self._living.values()):
                is_idle = time.monotonic() - living.member.idle_since_s > IDLE_S
                if is_idle and not living.member.is_busy:
                    living.task.cancel()
