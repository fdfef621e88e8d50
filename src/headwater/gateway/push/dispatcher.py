"""Which subscriptions this gateway pushes: all that say where to.

Every gateway of a cluster pushes every one of them; what each gets is for the group to decide, which gives a record of
a queue to one member, and a partition of a stream to one member. Settings are looked at again every few seconds, and at
once when they were changed here.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from headwater.client.admin.configs import GroupConfig
from headwater.client.asyncio_cluster import AsyncioCluster
from headwater.client.errors import ClientError
from headwater.gateway.groups.setting_keys import KIND, QUEUE, TOPIC
from headwater.gateway.kafka.group_configs import alter_group, configured_groups, group_configs
from headwater.gateway.push.pump import Pump, PushCounts, ReceiverGone
from headwater.gateway.push.source import QueueSource, Source, StreamSource
from headwater.gateway.push.webhook import Webhook
from headwater.gateway.subscriptions.members.member_pool import MemberPool
from headwater.gateway.subscriptions.members.queue_member import QueueMember
from headwater.gateway.subscriptions.members.stream_member import StreamMember
from headwater.gateway.subscriptions.push_settings import ALL_KEYS, STOPPED, PushSettings, push_settings
from headwater.gateway.subscriptions.webhook_targets import RefusedTarget

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LOOK_S = 2.0
MAX_PUMPS = 500
MAX_STREAM_PUMPS = 64
"""Each has threads."""
STOP_S = 10.0
REST_S = 5.0
"""Pause before a pump that failed begins again."""
REFUSED_S = 60.0
"""Pause before a pump begins again whose receiver this gateway may not reach."""
SECRET_WITHHELD = (
    "the brokers do not show the user of this gateway the secret that signs requests: name it in their setting gateways"
)
KEYS = (TOPIC, KIND, *ALL_KEYS)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PushedSubscription:
    """What a push depends on: if any of it changes, the push begins anew."""

    topic: str
    is_queue: bool
    settings: PushSettings


@dataclass(slots=True)
class _RunningPump:
    subscription: PushedSubscription
    task: asyncio.Task[None]
    pump: Pump | None = None
    """None while the receiver is not known to be allowed."""
    is_ending: bool = False

    def end(self) -> None:
        """Cancel the task once: a second cancellation would cut short the release of records and leaving the group."""
        if not self.is_ending:
            self.is_ending = True
            self.task.cancel()


class PushDispatcher:
    def __init__(
        self, cluster: AsyncioCluster, members: MemberPool, tasks: asyncio.TaskGroup, *, allows_private_webhooks: bool
    ) -> None:
        self.counts = PushCounts()
        self._cluster = cluster
        self._members = members
        self._tasks = tasks
        self._allows_private_webhooks = allows_private_webhooks
        self._running: dict[str, _RunningPump] = {}
        self._held_off: set[str] = set()
        self._returning: set[str] = set()
        """Held off until the settings are read that follow this."""
        self._look = asyncio.Event()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, cluster: AsyncioCluster, members: MemberPool, *, allows_private_webhooks: bool
    ) -> AsyncIterator[Self]:
        """It pushes while the context lasts; its pumps have ended after it."""
        async with asyncio.TaskGroup() as tasks:
            dispatcher = cls(cluster, members, tasks, allows_private_webhooks=allows_private_webhooks)
            looking = tasks.create_task(dispatcher._watch())
            try:
                yield dispatcher
            finally:
                looking.cancel()
                for running in dispatcher._running.values():
                    running.end()

    def look_now(self) -> None:
        """Read the settings of subscriptions again: some have changed."""
        self._look.set()

    def find(self, name: str) -> Pump | None:
        running = self._running.get(name)
        return running.pump if running is not None else None

    @contextlib.asynccontextmanager
    async def held_off(self, name: str) -> AsyncIterator[None]:
        """Within this the subscription is not pushed here, and no push of it is a member of its group."""
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

    def metric_families(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, help_text, value in (
            ("taken", "Records that webhooks have taken.", self.counts.taken),
            ("failed", "Requests to webhooks that failed.", self.counts.failed),
            ("dead", "Records that webhooks did not take as often as is allowed.", self.counts.dead),
        ):
            yield CounterMetricFamily(f"headwater_push_{name}", help_text, value)
        yield GaugeMetricFamily(
            "headwater_push_subscriptions", "Subscriptions that are pushed here.", len(self._running)
        )

    async def _watch(self) -> None:
        while True:
            self._look.clear()
            self._held_off -= self._returning
            self._returning.clear()
            try:
                self._serve(await self._pushed_subscriptions())
            except ClientError as error:
                log.info("push_settings_unread error=%s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()

    async def _pushed_subscriptions(self) -> dict[str, PushedSubscription]:
        """By name, no more than this gateway can push."""
        names = await configured_groups(self._cluster)
        configs = await group_configs(self._cluster, sorted(names), KEYS)
        found: dict[str, PushedSubscription] = {}
        streams = 0
        for name, config in configs.items():
            subscription = _pushed_subscription(config)
            if subscription is None:
                continue
            streams += not subscription.is_queue
            if len(found) >= MAX_PUMPS or streams > MAX_STREAM_PUMPS:
                log.warning("push_limit_reached pushed=%d not_pushed=%s", len(found), name)
                continue
            found[name] = subscription
        return found

    def _serve(self, subscriptions: dict[str, PushedSubscription]) -> None:
        for name, running in list(self._running.items()):
            if subscriptions.get(name) != running.subscription:
                running.end()  # begun again, if it is to be, when it has ended
        for name, each in subscriptions.items():
            if name not in self._running and name not in self._held_off:
                running = self._running[name] = _RunningPump(each, self._tasks.create_task(self._push(name, each)))
                running.task.add_done_callback(lambda _, name=name: self._ended(name))  # type: ignore[misc]

    async def _push(self, name: str, subscription: PushedSubscription) -> None:
        if subscription.settings.is_secret_withheld:
            # Requests without a signature are not what was asked for.
            log.warning("push_refused subscription=%s reason=%s", name, SECRET_WITHHELD)
            await asyncio.sleep(REFUSED_S)
            return
        try:
            webhook = Webhook(subscription.settings, allows_private=self._allows_private_webhooks)
            pump = Pump(name, subscription.settings, self._source(name, subscription), webhook, self.counts)
            self._running[name].pump = pump
            log.info("push_began subscription=%s", name)
            await pump.run()
        except RefusedTarget as error:
            # Another gateway may be allowed to; this one tries again in a while, or when the settings change.
            log.warning("push_refused subscription=%s reason=%s", name, error)
            await asyncio.sleep(REFUSED_S)
        except ReceiverGone as error:
            log.info("push_ended subscription=%s reason=%s", name, error)
            await self._stop(name, subscription, str(error))
        except Exception:
            log.exception("push_failed subscription=%s", name)
            await asyncio.sleep(REST_S)

    def _ended(self, name: str) -> None:
        del self._running[name]
        self._look.set()

    def _source(self, name: str, subscription: PushedSubscription) -> Source:
        member = self._members.make(name, subscription.topic, is_queue=subscription.is_queue)
        if isinstance(member, QueueMember):
            return QueueSource(member)
        assert isinstance(member, StreamMember), "there are two kinds"
        return StreamSource(member)

    async def _stop(self, name: str, subscription: PushedSubscription, reason: str) -> None:
        """Stop the push in all gateways until it is set up again, unless it was since: the reason concerns the receiver
        that answered."""
        try:
            now = _pushed_subscription((await group_configs(self._cluster, [name], KEYS))[name])
            if now is not None and now.settings.url == subscription.settings.url:
                await alter_group(self._cluster, name, set={STOPPED: reason[:500]})
        except ClientError as error:
            log.warning("push_not_stopped subscription=%s error=%s", name, error)
            await asyncio.sleep(REST_S)


def _pushed_subscription(config: GroupConfig) -> PushedSubscription | None:
    is_queue = config.values.get(KIND) == QUEUE
    settings = push_settings(config, is_queue=is_queue)
    topic = config.values.get(TOPIC, "")
    if settings is None or settings.stopped or not topic:
        return None
    return PushedSubscription(topic, is_queue, settings)
