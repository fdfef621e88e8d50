"""Records of subscriptions pulled, acknowledged and committed over HTTP, through the members that live here."""

import asyncio
from collections.abc import Iterable, Iterator

from starlette.requests import ClientDisconnect, Request

from headwater.gateway.http.problems import Problem
from headwater.gateway.kafka.known_topics import KnownTopics
from headwater.gateway.subscriptions.bodies import AckIn, AckResult, CommitIn, PullIn
from headwater.gateway.subscriptions.catalog import SubscriptionCatalog, SubscriptionInfo
from headwater.gateway.subscriptions.members.deliveries import DeliveredRecord, Delivery, delivered_record
from headwater.gateway.subscriptions.members.member_pool import Member, MemberPool
from headwater.gateway.subscriptions.members.pending_acks import AckType
from headwater.gateway.subscriptions.members.queue_member import QueueMember
from headwater.gateway.subscriptions.members.stream_member import StreamMember
from headwater.gateway.subscriptions.name_locks import NameLocks
from headwater.gateway.subscriptions.push_settings import push_settings


class SubscriptionReads:
    """Everything raises Problem, KafkaFailure."""

    def __init__(
        self, catalog: SubscriptionCatalog, topics: KnownTopics, members: MemberPool, locks: NameLocks
    ) -> None:
        self._catalog = catalog
        self._topics = topics
        self._members = members
        self._locks = locks

    async def pull(self, name: str, body: PullIn, request: Request) -> list[DeliveredRecord]:
        member = await self.member(name)
        if body.rewind:
            await _as_stream(member, name).rewind()
        taking = asyncio.ensure_future(member.take(body.max_records, body.max_bytes, body.wait_ms))
        leaving = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait((taking, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not taking.done():
                raise ClientDisconnect()
            return list(delivered_records(member, taking.result()))
        finally:
            for task in (taking, leaving):
                task.cancel()
            await asyncio.gather(taking, leaving, return_exceptions=True)

    async def acknowledge(self, name: str, body: AckIn) -> list[AckResult]:
        return await acknowledge(_as_queue(await self.member(name), name), body)

    async def commit(self, name: str, body: CommitIn) -> None:
        member = _as_stream(await self.member(name), name)
        count = await self._topics.partitions_of(member.topic)
        if any(each.partition >= count for each in body.offsets):
            raise Problem(400, "Bad request", f"Topic {member.topic} has {count} partitions, from 0 on.")
        await member.commit({each.partition: each.offset for each in body.offsets})

    async def member(self, name: str) -> Member:
        """The member that reads for this subscription here; it joins if there is none."""
        living = self._members.get(name)
        if living is not None:
            return living
        async with self._locks.hold(name):
            info = await self._catalog.get(name)
            push = push_settings(info.config, is_queue=info.is_queue)
            if push is not None and not push.stopped:
                raise Problem(
                    409, "Subscription is pushed", f"{name} is pushed to its webhook; make another one to pull."
                )
            return self._members.join(name, _topic_of(info), is_queue=info.is_queue)


def delivered_records(member: Member, deliveries: Iterable[Delivery]) -> Iterator[DeliveredRecord]:
    """As JSON; those of a queue with their ack ids."""
    for each in deliveries:
        yield delivered_record(each, member.ack_id(each) if isinstance(member, QueueMember) else None)


async def acknowledge(member: QueueMember, body: AckIn) -> list[AckResult]:
    """What became of each ack id. Raises Problem."""
    acks = [
        *((ack_id, AckType.ACCEPT) for ack_id in body.accept),
        *((ack_id, AckType.RELEASE) for ack_id in body.release),
        *((ack_id, AckType.REJECT) for ack_id in body.reject),
        *((ack_id, AckType.EXTEND) for ack_id in body.extend),
    ]
    if not acks:
        raise Problem(400, "Bad request", "Nothing is acknowledged: accept, release, reject and extend are empty.")
    return [AckResult(each.ack_id, each.status) for each in await member.acknowledge(acks)]


def _as_queue(member: Member, name: str) -> QueueMember:
    if not isinstance(member, QueueMember):
        raise Problem(409, "Not a queue", f"{name} is a stream: commit its position with /commit.")
    return member


def _as_stream(member: Member, name: str) -> StreamMember:
    if not isinstance(member, StreamMember):
        raise Problem(409, "Not a stream", f"{name} is a queue: its records are acknowledged one by one, by /ack.")
    return member


def _topic_of(info: SubscriptionInfo) -> str:
    if not info.topic:
        raise Problem(
            409,
            "No topic",
            f"Group {info.name} was never subscribed to one topic: it reads whatever its members name. "
            "POST /v1/subscriptions with its name gives it a topic.",
        )
    return info.topic


async def _disconnected(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
