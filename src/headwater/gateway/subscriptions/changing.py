"""Subscriptions made and changed."""

import time
from collections.abc import Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from msgspec import UNSET

from headwater.gateway.context import Context
from headwater.gateway.http.problems import Problem, bad_request, unavailable
from headwater.gateway.kafka.brokers import Brokers, Patience, Refused, check
from headwater.gateway.kafka.connection import BrokerGone
from headwater.gateway.kafka.errors import problem_of as kafka_problem
from headwater.gateway.kafka.group_configs import (
    DEAD_LETTER_TOPIC,
    FILTER,
    KIND,
    OFFSET_RESET,
    PAUSED,
    QUEUE,
    RETENTION,
    SHARE_ORDER,
    TOPIC,
    alter_group,
)
from headwater.gateway.records.positions import parse_position
from headwater.gateway.subscriptions.bodies import SubscriptionChange, SubscriptionIn
from headwater.gateway.subscriptions.facts import Facts, find
from headwater.gateway.subscriptions.push_settings import ALL_KEYS, ORDER, PREFIX, STOPPED, URL, PushIn, push_config
from headwater.gateway.subscriptions.webhook_targets import RefusedTarget, check_url
from headwater.model.errors import ErrorCode
from headwater.model.position import Anchor, place_in
from headwater.wire.codec import Message

ALTER_SHARE_GROUP_OFFSETS = 91
TAKES_LETTERS = "errors.deadletterqueue.group.enable"
OURS = ("headwater.subscription.", PREFIX)
"""Keys that are not set by their names, but by fields that say more."""


async def create(context: Context, brokers: Brokers, asked: SubscriptionIn) -> None:
    is_queue = asked.kind == QUEUE
    settings = _settings(context, asked, is_queue)
    partitions = await context.topics.partitions_of(asked.topic)
    existing = await find(context, brokers, asked.name)
    if existing is not None and existing.is_explicit:
        raise Problem(409, "Subscription exists", f"Subscription {asked.name} exists already. PATCH changes it.")
    if existing is not None and existing.is_queue != is_queue:
        raise Problem(409, "Subscription exists", f"Group {asked.name} exists already, as a {existing.kind}.")
    if asked.dead_letter_topic:
        await _check_takes_letters(context, asked.dead_letter_topic)
    offsets = await _offsets(context, asked, partitions)
    if is_queue:
        # The settings first: they are what makes a queue that nobody has used yet.
        await alter_group(brokers, asked.name, set=settings)
        await _start_queue(brokers, asked.name, asked.topic, offsets)
    else:
        # The position first: should this end in between, it can be repeated.
        await _commit(context, asked.name, asked.topic, offsets)
        await alter_group(brokers, asked.name, set=settings)


async def change(context: Context, brokers: Brokers, facts: Facts, asked: SubscriptionChange) -> None:
    _check_not_ours(asked.config)
    setting = {name: value for name, value in asked.config.items() if value is not None}
    deleted = {name for name, value in asked.config.items() if value is None}
    if asked.paused is not UNSET:
        if not facts.is_queue:
            raise bad_request("Only queues can be paused: who reads a stream fetches without saying for which group.")
        if asked.paused:
            setting |= {KIND: QUEUE, PAUSED: "true"}
        else:
            deleted.add(PAUSED)
    if asked.retention_ms is not UNSET:
        setting[RETENTION] = str(asked.retention_ms)
    if asked.push is None:
        deleted |= facts.config.own.keys() & set(ALL_KEYS)
    elif isinstance(asked.push, PushIn):
        if not facts.is_explicit:
            raise bad_request(f"{facts.name} has no topic of its own. POST /v1/subscriptions gives it one.")
        is_pushed = facts.config.values.get(URL, "")
        setting |= _push(context, asked.push, facts.is_queue, needs_url=not is_pushed)
        deleted.add(STOPPED)
    await alter_group(brokers, facts.name, set=setting, delete=deleted)


def _settings(context: Context, asked: SubscriptionIn, is_queue: bool) -> dict[str, str]:
    _check_not_ours(asked.config)
    settings = dict(asked.config)
    of_queues = {FILTER: asked.filter, SHARE_ORDER: asked.order, DEAD_LETTER_TOPIC: asked.dead_letter_topic}
    given = {key: value for key, value in of_queues.items() if value is not None}
    if given and not is_queue:
        raise bad_request("filter, order and dead_letter_topic are for queues: who reads a stream gets every record.")
    settings |= given
    settings |= {TOPIC: asked.topic, KIND: asked.kind}
    if asked.retention_ms is not None:
        settings[RETENTION] = str(asked.retention_ms)
    if is_queue:
        # For partitions that the topic gets later: nothing in them came before the subscription.
        settings.setdefault(OFFSET_RESET, "earliest")
    if asked.push is not None:
        settings |= _push(context, asked.push, is_queue, needs_url=True)
    return settings


def _push(context: Context, given: PushIn, is_queue: bool, *, needs_url: bool) -> dict[str, str]:
    settings = push_config(given)
    if URL in settings:
        try:
            check_url(settings[URL], allows_private=context.config.private_webhooks)
        except RefusedTarget as error:
            raise bad_request(f"Nothing can be pushed there: {error}.") from None
    elif needs_url:
        raise bad_request("push needs a url.")
    if given.format == "cloudevents-binary" and isinstance(given.batch_records, int) and given.batch_records > 1:
        raise bad_request("CloudEvents in binary mode come one by one: use cloudevents-structured for several.")
    if is_queue and given.order == "partition":
        raise bad_request("A queue is ordered by key or not at all; push a stream for order by partition.")
    if not is_queue and given.attempts is not UNSET:
        raise bad_request("Records of a stream are sent until they are taken; a queue gives up, and has dead letters.")
    if is_queue and ORDER in settings:
        settings[SHARE_ORDER] = settings[ORDER]  # or two gateways would have two records of a key
    return settings


def _check_not_ours(config: Mapping[str, object]) -> None:
    for name in config:
        if name.startswith(OURS):
            raise bad_request(f"{name[:100]} is not set as config; the subscription has fields for it.")


async def _check_takes_letters(context: Context, topic: str) -> None:
    """A topic that does not exist is made for it; one that does must have been given for that (KIP-1191)."""
    if topic not in (await context.admin.metadata()).topics:
        return
    entry = (await context.admin.topic_config(topic)).get(TAKES_LETTERS)
    if entry is None or entry.value != "true":
        raise bad_request(f"Topic {topic} exists, and does not take dead letters: set its config {TAKES_LETTERS}=true.")


async def _offsets(context: Context, asked: SubscriptionIn, partitions: int) -> dict[int, int]:
    position = parse_position(asked.from_, time.time_ns() // 1_000_000)
    places = [(asked.topic, index) for index in range(partitions)]
    held = await context.admin.offset_range(places)
    if len(held) < len(places):
        raise unavailable(f"Not every partition of {asked.topic} has a leader now.")
    at_time = {}
    if position.anchor is Anchor.TIME:
        at_time = await context.admin.offsets(places, OffsetSpec.for_timestamp(position.value))
    return {
        place[1]: place_in(position, start, end, at_time.get(place)) for place, (start, end) in sorted(held.items())
    }


async def _start_queue(brokers: Brokers, name: str, topic: str, offsets: Mapping[int, int]) -> None:
    partitions = [Message(partition_index=index, start_offset=offset) for index, offset in offsets.items()]
    asked = [Message(topic_name=topic, partitions=partitions)]
    # Its coordinator may hear of the settings a moment after the node that was given them.
    patience = Patience(also=(ErrorCode.GROUP_ID_NOT_FOUND,))
    while True:
        try:
            answer = await brokers.ask_coordinator(name, ALTER_SHARE_GROUP_OFFSETS, 0, group_id=name, topics=asked)
            check(answer.error_code, answer.error_message, f"Group {name}")
            for responded in answer.responses:
                for each in responded.partitions:
                    check(each.error_code, each.error_message, f"Partition {each.partition_index} of {topic}")
            return
        except (Refused, BrokerGone) as error:
            await patience.pause(error)


async def _commit(context: Context, name: str, topic: str, offsets: Mapping[int, int]) -> None:
    wanted = [TopicPartition(topic, index, offset) for index, offset in offsets.items()]

    def commit() -> None:
        request = [ConsumerGroupTopicPartitions(name, wanted)]
        timeout_s = context.config.request_timeout_ms / 1000
        (future,) = context.admin.client.alter_consumer_group_offsets(request, request_timeout=timeout_s).values()
        for place in future.result().topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)

    try:
        await context.in_thread(commit)
    except KafkaException as error:
        if error.args[0].code() == ErrorCode.UNKNOWN_MEMBER_ID:
            raise Problem(409, "Group in use", f"Group {name} has members that are running. Stop them first.") from None
        raise kafka_problem(error, topic=topic, group=name) from None
