"""Which subscriptions this gateway pushes: all that say where to.

Every gateway of a cluster pushes every one of them; what each gets is for the group to decide, which gives a record of
a queue to one member, and a partition of a stream to one member. Settings are looked at again every few seconds, and at
once when they were changed here.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from headwater.gateway.context import Context
from headwater.gateway.kafka.brokers import Refused
from headwater.gateway.kafka.connection import BrokerGone
from headwater.gateway.push.pump import Counts, Pump, ReceiverGone
from headwater.gateway.push.settings import ALL_KEYS, STOPPED, PushSettings, push_settings
from headwater.gateway.push.source import QueueSource, Source, StreamSource
from headwater.gateway.push.targets import RefusedTarget
from headwater.gateway.push.webhook import Webhook
from headwater.gateway.subscriptions.group_settings import (
    KIND,
    QUEUE,
    TOPIC,
    alter_group,
    configured_groups,
    group_configs,
)
from headwater.gateway.subscriptions.share_member import ShareMember
from headwater.gateway.subscriptions.stream_member import StreamMember

LOOK_S = 2.0
MAX_PUMPS = 500
MAX_STREAM_PUMPS = 64
"""Each has threads."""
STOP_S = 10.0
REST_S = 5.0
"""Before a pump that failed is begun again."""
REFUSED_S = 60.0
"""Before one whose receiver this gateway may not reach is."""
KEYS = (TOPIC, KIND, *ALL_KEYS)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    topic: str
    is_queue: bool
    settings: PushSettings


@dataclass(slots=True)
class _Running:
    wanted: Wanted
    task: asyncio.Task[None]
    pump: Pump | None = None


class Dispatcher:
    def __init__(self, context: Context) -> None:
        self.counts = Counts()
        self._context = context
        self._brokers = context.subscriptions.brokers
        self._running: dict[str, _Running] = {}
        self._look = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            looking = tasks.create_task(self._watch())
            try:
                yield
            finally:
                looking.cancel()
                for running in self._running.values():
                    running.task.cancel()

    def look_now(self) -> None:
        self._look.set()

    def pump(self, name: str) -> Pump | None:
        running = self._running.get(name)
        return running.pump if running is not None else None

    @property
    def pumps(self) -> int:
        return len(self._running)

    async def leave(self, name: str) -> None:
        """When this returns, nothing of it is pushed here, until it is looked for again."""
        running = self._running.get(name)
        if running is not None:
            running.task.cancel()
            await asyncio.wait([running.task], timeout=STOP_S)

    async def _watch(self) -> None:
        while True:
            self._look.clear()
            try:
                self._serve(await self._wanted())
            except (BrokerGone, Refused) as error:
                log.info("push_settings_unread error=%s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()

    async def _wanted(self) -> dict[str, Wanted]:
        names = await configured_groups(self._brokers)
        configs = await group_configs(self._brokers, sorted(names), KEYS)
        found: dict[str, Wanted] = {}
        streams = 0
        for name, config in configs.items():
            is_queue = config.values.get(KIND) == QUEUE
            settings = push_settings(config.values, is_queue=is_queue)
            topic = config.values.get(TOPIC, "")
            if settings is None or settings.stopped or not topic:
                continue
            streams += not is_queue
            if len(found) >= MAX_PUMPS or streams > MAX_STREAM_PUMPS:
                log.warning("push_limit_reached pushed=%d not_pushed=%s", len(found), name)
                continue
            found[name] = Wanted(topic, is_queue, settings)
        return found

    def _serve(self, wanted: dict[str, Wanted]) -> None:
        assert self._tasks is not None, "it runs"
        for name, running in list(self._running.items()):
            if wanted.get(name) != running.wanted:
                running.task.cancel()  # begun again, if it is to be, when it has ended
        for name, each in wanted.items():
            if name not in self._running:
                running = _Running(each, self._tasks.create_task(self._push(name, each)))
                self._running[name] = running

    async def _push(self, name: str, wanted: Wanted) -> None:
        try:
            webhook = Webhook(wanted.settings, allows_private=self._context.config.private_webhooks)
            pump = Pump(name, wanted.settings, self._source(name, wanted), webhook, self.counts)
            self._running[name].pump = pump
            log.info("push_began subscription=%s", name)
            await pump.run()
        except RefusedTarget as error:
            # Another gateway may be allowed to; this one tries again in a while, or when the settings change.
            log.warning("push_refused subscription=%s reason=%s", name, error)
            await asyncio.sleep(REFUSED_S)
        except ReceiverGone as error:
            log.info("push_ended subscription=%s reason=%s", name, error)
            await self._stop(name, str(error))
        except Exception:
            log.exception("push_failed subscription=%s", name)
            await asyncio.sleep(REST_S)
        finally:
            self._running.pop(name, None)
            self._look.set()

    def _source(self, name: str, wanted: Wanted) -> Source:
        member = self._context.subscriptions.members.make(name, wanted.topic, is_queue=wanted.is_queue)
        if isinstance(member, ShareMember):
            return QueueSource(member)
        assert isinstance(member, StreamMember), "there are two kinds"
        return StreamSource(member)

    async def _stop(self, name: str, reason: str) -> None:
        """For all gateways, and for good: until somebody sets it up again."""
        try:
            await alter_group(self._brokers, name, set={STOPPED: reason[:500]})
        except (BrokerGone, Refused) as error:
            log.warning("push_not_stopped subscription=%s error=%s", name, error)
            await asyncio.sleep(REST_S)
