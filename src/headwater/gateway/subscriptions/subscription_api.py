"""Subscriptions as the routes list, create, change and delete them."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from headwater.gateway.subscriptions.bodies import Pushing, Subscription, SubscriptionChange, SubscriptionIn
from headwater.gateway.subscriptions.catalog import SubscriptionCatalog, SubscriptionInfo
from headwater.gateway.subscriptions.edits import SubscriptionEdits
from headwater.gateway.subscriptions.members.member_pool import MemberPool
from headwater.gateway.subscriptions.name_locks import NameLocks
from headwater.gateway.subscriptions.push_settings import SECRET, push_settings


class RunningPush(Protocol):
    """A push of this gateway, as push/pump.py has it."""

    last_failure: str | None

    @property
    def in_flight(self) -> int: ...

    @property
    def window(self) -> int: ...

    @property
    def held(self) -> int:
        """Records of a queue that are leased for it."""


class Pushes(Protocol):
    """The pushes of this gateway, as push/dispatcher.py has them."""

    def find(self, name: str) -> RunningPush | None: ...

    def look_now(self) -> None:
        """Read the settings of subscriptions again: some have changed."""

    def held_off(self, name: str) -> AbstractAsyncContextManager[None]:
        """Within this the subscription is not pushed here, and no push of it is a member of its group."""


class SubscriptionApi:
    """Everything raises Problem, KafkaFailure."""

    def __init__(
        self,
        catalog: SubscriptionCatalog,
        edits: SubscriptionEdits,
        members: MemberPool,
        pushes: Pushes,
        locks: NameLocks,
    ) -> None:
        self._catalog = catalog
        self._edits = edits
        self._members = members
        self._pushes = pushes
        self._locks = locks

    async def all(self) -> list[Subscription]:
        return [self._body(info) for info in await self._catalog.all()]

    async def describe(self, name: str) -> Subscription:
        return self._body(await self._catalog.get(name))

    async def create(self, request: SubscriptionIn) -> Subscription:
        async with self._locks.hold(request.name):
            await self._edits.create(request)
        self._pushes.look_now()
        return await self.describe(request.name)

    async def change(self, name: str, request: SubscriptionChange) -> Subscription:
        async with self._locks.hold(name):
            await self._edits.change(await self._catalog.get(name), request)
        self._pushes.look_now()
        return await self.describe(name)

    async def delete(self, name: str) -> None:
        """The members of this gateway have left before the group is deleted; a reader that comes back gets 404."""
        async with self._locks.hold(name):
            info = await self._catalog.get(name)
            async with self._pushes.held_off(name):
                await self._members.leave(name)
                await self._edits.delete(info)

    def _body(self, info: SubscriptionInfo) -> Subscription:
        settings = push_settings(info.config, is_queue=info.is_queue)
        push = self._pushes.find(info.name)
        held = self._members.held(info.name) + (push.held if push is not None else 0)
        lag = info.lag
        return Subscription(
            name=info.name,
            topic=info.topic or None,
            kind="queue" if info.is_queue else "stream",
            state=info.shown_state,
            lag=lag.records,
            unknown_partitions=lag.unknown_partitions,
            members=info.members,
            in_flight=held if info.is_queue else None,
            dead_letter_topic=info.dead_letter_topic or None,
            config={name: value for name, value in info.config.own.items() if name != SECRET},
            push=settings.out() if settings is not None else None,
            pushing=Pushing(push.in_flight, push.window, push.last_failure) if push is not None else None,
        )
