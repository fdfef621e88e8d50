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
from headwater.gateway.kafka.group_configs import (
    KIND,
    QUEUE,
    TOPIC,
    GroupConfig,
    alter_group,
    configured_groups,
    group_configs,
)
from headwater.gateway.push.pump import Counts, Pump, ReceiverGone
from headwater.gateway.push.source import QueueSource, Source, StreamSource
from headwater.gateway.push.webhook import Webhook
from headwater.gateway.subscriptions.members.share_member import ShareMember
from headwater.gateway.subscriptions.members.stream_member import StreamMember
from headwater.gateway.subscriptions.push_settings import ALL_KEYS, STOPPED, PushSettings, push_settings
from headwater.gateway.subscriptions.webhook_targets import RefusedTarget

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
    is_ending: bool = False

    def end(self) -> None:
        """Once: a second cancellation would cut short what the pump gives back, and its leaving of the group."""
        if not self.is_ending:
            self.is_ending = True
            self.task.cancel()


class Dispatcher:
    def __init__(self, context: Context) -> None:
        self.counts = Counts()
        self._context = context
        self._brokers = context.subscriptions.brokers
        self._running: dict[str, _Running] = {}
        self._held_off: set[str] = set()
        self._returning: set[str] = set()
        """Held off until settings are looked at that were read after this."""
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
                    running.end()

    def look_now(self) -> None:
        self._look.set()

    def pump(self, name: str) -> Pump | None:
        running = self._running.get(name)
        return running.pump if running is not None else None

    @property
    def pumps(self) -> int:
        return len(self._running)

    @contextlib.asynccontextmanager
    async def held_off(self, name: str) -> AsyncIterator[None]:
        """Within this nothing of it is pushed here, and no member of its group is here."""
        self._returning.discard(name)
        self._held_off.add(name)
        try:
            running = self._running.get(name)
            if running is not None:
                running.end()
                await asyncio.wait([running.task], timeout=STOP_S)
            yield
        finally:
            self._returning.add(name)
            self.look_now()

    async def _watch(self) -> None:
        while True:
            self._look.clear()
            self._held_off -= self._returning
            self._returning.clear()
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
            wanted = _wanted_by(config)
            if wanted is None:
                continue
            streams += not wanted.is_queue
            if len(found) >= MAX_PUMPS or streams > MAX_STREAM_PUMPS:
                log.warning("push_limit_reached pushed=%d not_pushed=%s", len(found), name)
                continue
            found[name] = wanted
        return found

    def _serve(self, wanted: dict[str, Wanted]) -> None:
        assert self._tasks is not None, "it runs"
        for name, running in list(self._running.items()):
            if wanted.get(name) != running.wanted:
                running.end()  # begun again, if it is to be, when it has ended
        for name, each in wanted.items():
            if name not in self._running and name not in self._held_off:
                running = self._running[name] = _Running(each, self._tasks.create_task(self._push(name, each)))
                running.task.add_done_callback(lambda _, name=name: self._ended(name))  # type: ignore[misc]

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
            await self._stop(name, wanted, str(error))
        except Exception:
            log.exception("push_failed subscription=%s", name)
            await asyncio.sleep(REST_S)

    def _ended(self, name: str) -> None:
        del self._running[name]
        self._look.set()

    def _source(self, name: str, wanted: Wanted) -> Source:
        member = self._context.subscriptions.members.make(name, wanted.topic, is_queue=wanted.is_queue)
        if isinstance(member, ShareMember):
            return QueueSource(member)
        assert isinstance(member, StreamMember), "there are two kinds"
        return StreamSource(member)

    async def _stop(self, name: str, wanted: Wanted, reason: str) -> None:
        """For all gateways, and for good: until it is set up again. Not if that was done meanwhile, or it was deleted:
        the reason is one of the receiver that answered."""
        try:
            now = _wanted_by((await group_configs(self._brokers, [name], KEYS))[name])
            if now is not None and now.settings.url == wanted.settings.url:
                await alter_group(self._brokers, name, set={STOPPED: reason[:500]})
        except (BrokerGone, Refused) as error:
            log.warning("push_not_stopped subscription=%s error=%s", name, error)
            await asyncio.sleep(REST_S)


def _wanted_by(config: GroupConfig) -> Wanted | None:
    is_queue = config.values.get(KIND) == QUEUE
    settings = push_settings(config.values, is_queue=is_queue)
    topic = config.values.get(TOPIC, "")
    return Wanted(topic, is_queue, settings) if settings is not None and not settings.stopped and topic else None
