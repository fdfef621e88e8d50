"""Subscriptions as the routes use them: the members that live here, and the cluster behind them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from starlette.requests import ClientDisconnect, Request

from headwater.gateway.context import Context
from headwater.gateway.http.problems import Problem
from headwater.gateway.kafka.brokers import Brokers
from headwater.gateway.kafka.reading import ReadRequest
from headwater.gateway.subscriptions import bodies as shapes
from headwater.gateway.subscriptions import changing, ending
from headwater.gateway.subscriptions.facts import Facts, all_facts, known
from headwater.gateway.subscriptions.members.deliveries import DeliveredRecord, Delivery, delivered_record
from headwater.gateway.subscriptions.members.member_pool import Member, Members
from headwater.gateway.subscriptions.members.share_member import ShareMember
from headwater.gateway.subscriptions.members.stream_member import StreamMember, delivery_of
from headwater.gateway.subscriptions.name_locks import Turns
from headwater.gateway.subscriptions.push_settings import SECRET, push_settings
from headwater.gateway.subscriptions.redrive_jobs import Redriving
from headwater.gateway.subscriptions.settling import Verdict
from headwater.model.position import Anchor, Position

LETTER_BYTES = 4 * 1024 * 1024


class Serving:
    def __init__(self, context: Context) -> None:
        self.brokers = Brokers(context.config.bootstrap)
        self.members = Members(context.config, self.brokers)
        self._context = context
        self._redriving = Redriving(context)
        self._turns = Turns()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        try:
            async with self.members.running():
                yield
        finally:
            await self._redriving.close()
            self.brokers.close()

    async def all(self) -> list[shapes.Subscription]:
        return [self._shown(facts) for facts in await all_facts(self._context, self.brokers)]

    async def describe(self, name: str) -> shapes.Subscription:
        return self._shown(await known(self._context, self.brokers, name))

    async def create(self, asked: shapes.SubscriptionIn) -> shapes.Subscription:
        async with self._turns.of(asked.name):
            await changing.create(self._context, self.brokers, asked)
        self._changed()
        return await self.describe(asked.name)

    async def change(self, name: str, asked: shapes.SubscriptionChange) -> shapes.Subscription:
        async with self._turns.of(name):
            facts = await known(self._context, self.brokers, name)
            await changing.change(self._context, self.brokers, facts, asked)
        self._changed()
        return await self.describe(name)

    async def delete(self, name: str) -> None:
        """Whoever reads it here has left before its group goes, and comes back to a subscription that is not there."""
        async with self._turns.of(name), contextlib.AsyncExitStack() as stack:
            facts = await known(self._context, self.brokers, name)
            if self._context.pushing is not None:
                await stack.enter_async_context(self._context.pushing.held_off(name))
            await self.members.leave(name)
            await ending.end(self.brokers, facts)

    async def pull(self, name: str, asked: shapes.PullIn, request: Request) -> list[DeliveredRecord]:
        member = await self.member(name)
        if asked.rewind:
            await self.as_stream(member, name).rewind()
        taking = asyncio.ensure_future(member.take(asked.max_records, asked.max_bytes, asked.wait_ms))
        leaving = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait((taking, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                raise ClientDisconnect()
            return list(shown(member, taking.result()))
        finally:
            for task in (taking, leaving):
                task.cancel()
            await asyncio.gather(taking, leaving, return_exceptions=True)

    async def acknowledge(self, name: str, asked: shapes.AckIn) -> list[shapes.AckResult]:
        return await settle(self.as_queue(await self.member(name), name), asked)

    async def commit(self, name: str, asked: shapes.CommitIn) -> None:
        member = self.as_stream(await self.member(name), name)
        count = await self._context.topics.partitions_of(member.topic)
        if any(each.partition >= count for each in asked.offsets):
            raise Problem(400, "Bad request", f"Topic {member.topic} has {count} partitions, from 0 on.")
        await member.commit({each.partition: each.offset for each in asked.offsets})

    async def dead_letters(self, name: str, limit: int) -> shapes.Letters:
        topic = await self._letters_of(name)
        found = (await self._context.admin.metadata()).topics.get(topic)
        if found is None:
            return shapes.Letters(topic, [])  # the first of them makes it
        position = Position(Anchor.LAST, limit)
        with self._context.budget.hold(LETTER_BYTES):
            read = await self._context.reader.read(
                ReadRequest(topic, tuple(sorted(found.partitions)), position, limit, LETTER_BYTES)
            )
            return shapes.Letters(topic, [_letter(message) for message in read.records[-limit:]])

    async def redrive(self, name: str, asked: shapes.RedriveIn) -> shapes.Redriven:
        topic = await self._letters_of(name)
        if topic not in (await self._context.admin.metadata()).topics:
            return shapes.Redriven(topic, 0, {}, 0, 0, 0, asked.dry_run)
        return await self._redriving.run(topic, asked)

    async def member(self, name: str) -> Member:
        """The one that reads for this subscription here. Raises Problem."""
        living = self.members.get(name)
        if living is not None:
            return living
        async with self._turns.of(name):
            facts = await known(self._context, self.brokers, name)
            push = push_settings(facts.config.values, is_queue=facts.is_queue)
            if push is not None and not push.stopped:
                raise Problem(
                    409, "Subscription is pushed", f"{name} is pushed to its webhook; make another one to pull."
                )
            return self.members.join(name, _topic_of(facts), is_queue=facts.is_queue)

    def as_queue(self, member: Member, name: str) -> ShareMember:
        if not isinstance(member, ShareMember):
            raise Problem(409, "Not a queue", f"{name} is a stream: how far it is read is told by /commit.")
        return member

    def as_stream(self, member: Member, name: str) -> StreamMember:
        if not isinstance(member, StreamMember):
            raise Problem(409, "Not a stream", f"{name} is a queue: its records are settled one by one, by /ack.")
        return member

    async def _letters_of(self, name: str) -> str:
        facts = await known(self._context, self.brokers, name)
        if not facts.dead_letter_topic:
            raise Problem(409, "No dead letters", f"{name} has no dead-letter topic: only queues have one.")
        return facts.dead_letter_topic

    def _shown(self, facts: Facts) -> shapes.Subscription:
        push = push_settings(facts.config.values, is_queue=facts.is_queue)
        pump = self._context.pushing.pump(facts.name) if self._context.pushing is not None else None
        lag = facts.lag
        return shapes.Subscription(
            name=facts.name,
            topic=facts.topic or None,
            kind="queue" if facts.is_queue else "stream",
            state=facts.shown_state,
            lag=lag.records,
            unknown_partitions=lag.unknown_partitions,
            members=facts.members,
            in_flight=self.members.held(facts.name) + (pump.held if pump is not None else 0)
            if facts.is_queue
            else None,
            dead_letter_topic=facts.dead_letter_topic or None,
            config={name: value for name, value in facts.config.own.items() if name != SECRET},
            push=push.out() if push is not None else None,
            pushing=(shapes.Pushing(pump.in_flight, pump.window, pump.last_failure) if pump is not None else None),
        )

    def _changed(self) -> None:
        if self._context.pushing is not None:
            self._context.pushing.look_now()


def shown(member: Member, deliveries: Iterable[Delivery]) -> Iterator[DeliveredRecord]:
    for each in deliveries:
        yield delivered_record(each, member.ack_id(each) if isinstance(member, ShareMember) else None)


async def settle(member: ShareMember, asked: shapes.AckIn) -> list[shapes.AckResult]:
    verdicts = [
        *((ack_id, Verdict.ACCEPT) for ack_id in asked.accept),
        *((ack_id, Verdict.RELEASE) for ack_id in asked.release),
        *((ack_id, Verdict.REJECT) for ack_id in asked.reject),
        *((ack_id, Verdict.EXTEND) for ack_id in asked.extend),
    ]
    if not verdicts:
        raise Problem(400, "Bad request", "Nothing is acknowledged: accept, release, reject and extend are empty.")
    return [shapes.AckResult(each.ack_id, each.status) for each in await member.settle(verdicts)]  # type: ignore[arg-type]


def _topic_of(facts: Facts) -> str:
    if not facts.topic:
        raise Problem(
            409,
            "No topic",
            f"Group {facts.name} was never subscribed to one topic: it reads whatever its members name. "
            "POST /v1/subscriptions with its name gives it a topic.",
        )
    return facts.topic


async def _gone(request: Request) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _letter(message: Any) -> shapes.Letter:
    delivery = delivery_of(message)
    about = {
        name.removeprefix("headwater.dlq."): (value or b"").decode(errors="replace")
        for name, value in delivery.headers
        if name.startswith("headwater.dlq.")
    }
    place = [about.get(part) for part in ("topic", "partition", "offset")]
    count = about.get("delivery-count", "")
    return shapes.Letter(
        delivered_record(delivery, None),
        "/".join(str(part) for part in place) if None not in place else None,
        about.get("group"),
        about.get("reason"),
        int(count) if count.isascii() and count.isdigit() and len(count) < 10 else None,
    )
