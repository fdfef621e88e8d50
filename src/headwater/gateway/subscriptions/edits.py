"""Subscriptions created, changed and deleted."""

import time
from collections.abc import Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from msgspec import UNSET

from headwater.client.admin.groups import start_share_group
from headwater.client.asyncio_cluster import AsyncioCluster, retried
from headwater.gateway.groups.setting_keys import (
    DEAD_LETTER_TOPIC,
    FILTER,
    KIND,
    OFFSET_RESET,
    PAUSED,
    QUEUE,
    RETENTION,
    SHARE_ORDER,
    TOPIC,
)
from headwater.gateway.http.problems import Problem, bad_request, unavailable
from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.client_errors import MISSING_TOPIC
from headwater.gateway.kafka.errors import GroupInUse
from headwater.gateway.kafka.group_configs import alter_group
from headwater.gateway.kafka.known_topics import KnownTopics
from headwater.gateway.records.positions import parse_position
from headwater.gateway.subscriptions import ending
from headwater.gateway.subscriptions.bodies import SubscriptionChange, SubscriptionIn
from headwater.gateway.subscriptions.catalog import SubscriptionCatalog, SubscriptionInfo
from headwater.gateway.subscriptions.push_settings import ALL_KEYS, ORDER, PREFIX, STOPPED, URL, PushIn, push_config
from headwater.gateway.subscriptions.webhook_targets import RefusedTarget, check_url
from headwater.model.errors import ErrorCode
from headwater.model.position import Anchor, offset_in

TAKES_DEAD_LETTERS = "errors.deadletterqueue.group.enable"
OURS = ("headwater.subscription.", PREFIX)
"""Keys that are not set by their names, but by fields that say more."""


class SubscriptionEdits:
    """Everything raises Problem, KafkaFailure, ClientError."""

    def __init__(
        self,
        catalog: SubscriptionCatalog,
        *,
        admin: Admin,
        topics: KnownTopics,
        cluster: AsyncioCluster,
        allows_private_webhooks: bool,
    ) -> None:
        self._catalog = catalog
        self._admin = admin
        self._topics = topics
        self._cluster = cluster
        self._allows_private_webhooks = allows_private_webhooks

    async def create(self, request: SubscriptionIn) -> None:
        is_queue = request.kind == QUEUE
        settings = self._settings(request, is_queue)
        partitions = await self._topics.partitions_of(request.topic)
        await self._check_is_new(request.name, is_queue)
        if request.dead_letter_topic:
            await self._check_takes_dead_letters(request.dead_letter_topic)
        offsets = await self._start_offsets(request, partitions)
        if is_queue:
            # The settings first: a queue without members exists by its settings alone.
            await alter_group(self._cluster, request.name, set=settings)
            await self._start_queue(request.name, request.topic, offsets)
        else:
            # The position first: should this end in between, it can be repeated.
            await self._commit(request.name, request.topic, offsets)
            await alter_group(self._cluster, request.name, set=settings)

    async def change(self, info: SubscriptionInfo, request: SubscriptionChange) -> None:
        _check_not_ours(request.config)
        settings = {name: value for name, value in request.config.items() if value is not None}
        deleted = {name for name, value in request.config.items() if value is None}
        if request.paused is not UNSET:
            if not info.is_queue:
                raise bad_request(
                    "Only queues can be paused: who reads a stream fetches without saying for which group."
                )
            if request.paused:
                settings |= {KIND: QUEUE, PAUSED: "true"}
            else:
                deleted.add(PAUSED)
        if request.retention_ms is not UNSET:
            settings[RETENTION] = str(request.retention_ms)
        if request.push is None:
            deleted |= info.config.own.keys() & set(ALL_KEYS)
        elif isinstance(request.push, PushIn):
            if not info.is_explicit:
                raise bad_request(f"{info.name} is not bound to a topic. POST /v1/subscriptions gives it one.")
            is_pushed = bool(info.config.values.get(URL, ""))
            settings |= self._push_settings(request.push, info.is_queue, needs_url=not is_pushed)
            deleted.add(STOPPED)
        await alter_group(self._cluster, info.name, set=settings, delete=deleted)

    async def delete(self, info: SubscriptionInfo) -> None:
        """No member of this gateway may be in the group, nor join it meanwhile."""
        await ending.end(self._cluster, info)

    def _settings(self, request: SubscriptionIn, is_queue: bool) -> dict[str, str]:
        _check_not_ours(request.config)
        settings = dict(request.config)
        optional = {FILTER: request.filter, SHARE_ORDER: request.order, DEAD_LETTER_TOPIC: request.dead_letter_topic}
        of_queue = {key: value for key, value in optional.items() if value is not None}
        if of_queue and not is_queue:
            raise bad_request(
                "filter, order and dead_letter_topic are for queues: who reads a stream gets every record."
            )
        settings |= of_queue
        settings |= {TOPIC: request.topic, KIND: request.kind}
        if request.retention_ms is not None:
            settings[RETENTION] = str(request.retention_ms)
        if is_queue:
            # For partitions that the topic gets later: nothing in them came before the subscription.
            settings.setdefault(OFFSET_RESET, "earliest")
        if request.push is not None:
            settings |= self._push_settings(request.push, is_queue, needs_url=True)
        return settings

    def _push_settings(self, push: PushIn, is_queue: bool, *, needs_url: bool) -> dict[str, str]:
        settings = push_config(push)
        if URL in settings:
            try:
                check_url(settings[URL], allows_private=self._allows_private_webhooks)
            except RefusedTarget as error:
                raise bad_request(f"Nothing can be pushed there: {error}.") from None
        elif needs_url:
            raise bad_request("push needs a url.")
        if push.format == "cloudevents-binary" and isinstance(push.batch_records, int) and push.batch_records > 1:
            raise bad_request("CloudEvents in binary mode come one by one: use cloudevents-structured for several.")
        if is_queue and push.order == "partition":
            raise bad_request("A queue is ordered by key or not at all; push a stream for order by partition.")
        if not is_queue and push.attempts is not UNSET:
            raise bad_request(
                "Records of a stream are sent until they are taken; a queue gives up, and has dead letters."
            )
        if is_queue and ORDER in settings:
            settings[SHARE_ORDER] = settings[ORDER]  # or two gateways would have two records of a key
        return settings

    async def _check_is_new(self, name: str, is_queue: bool) -> None:
        existing = await self._catalog.find(name)
        if existing is not None and existing.is_explicit:
            raise Problem(409, "Subscription exists", f"Subscription {name} exists already. PATCH changes it.")
        if existing is not None and existing.is_queue != is_queue:
            raise Problem(409, "Subscription exists", f"Group {name} exists already, as a {existing.kind}.")

    async def _check_takes_dead_letters(self, topic: str) -> None:
        """A topic that does not exist is created later; one that exists must allow dead letters (KIP-1191)."""
        if topic not in (await self._admin.metadata()).topics:
            return
        entry = (await self._admin.topic_config(topic)).get(TAKES_DEAD_LETTERS)
        if entry is None or entry.value != "true":
            raise bad_request(
                f"Topic {topic} exists, and does not take dead letters: set its config {TAKES_DEAD_LETTERS}=true."
            )

    async def _start_offsets(self, request: SubscriptionIn, partitions: int) -> dict[int, int]:
        """Where the subscription begins in each partition."""
        position = parse_position(request.from_, time.time_ns() // 1_000_000)
        names = [(request.topic, index) for index in range(partitions)]
        ranges = await self._admin.offset_range(names)
        if len(ranges) < len(names):
            raise unavailable(f"Not every partition of {request.topic} has a leader now.")
        at_time = {}
        if position.anchor is Anchor.TIME:
            at_time = await self._admin.offsets(names, OffsetSpec.for_timestamp(position.value))
        return {
            name[1]: offset_in(position, start, end, at_time.get(name)) for name, (start, end) in sorted(ranges.items())
        }

    async def _start_queue(self, name: str, topic: str, offsets: Mapping[int, int]) -> None:
        question = start_share_group(name, topic, offsets)
        # Its coordinator may hear of the settings a moment after the node that was given them.
        await retried(lambda: self._cluster.answer(question), also={ErrorCode.GROUP_ID_NOT_FOUND}, final=MISSING_TOPIC)

    async def _commit(self, name: str, topic: str, offsets: Mapping[int, int]) -> None:
        partitions = [TopicPartition(topic, index, offset) for index, offset in offsets.items()]

        def commit(client: AdminClient, timeout_s: float) -> None:
            request = [ConsumerGroupTopicPartitions(name, partitions)]
            (future,) = client.alter_consumer_group_offsets(request, request_timeout=timeout_s).values()
            try:
                for partition in future.result().topic_partitions:
                    if partition.error is not None:
                        raise KafkaException(partition.error)
            except KafkaException as error:
                if error.args[0].code() != ErrorCode.UNKNOWN_MEMBER_ID:
                    raise
                raise GroupInUse(f"Group {name} has members that are running. Stop them first.") from None

        await self._admin.ask(commit, topic=topic, group=name)


def _check_not_ours(config: Mapping[str, object]) -> None:
    for name in config:
        if name.startswith(OURS):
            raise bad_request(f"{name[:100]} is not set as config; the subscription has fields for it.")
