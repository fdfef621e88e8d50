"""A shard with one group of the new protocol, driven by hand: heartbeats in, what members have and may do out."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headwater.groups.assignment import Assignment, of_partitions
from headwater.groups.consumer_requests import ConsumerHeartbeat
from headwater.groups.effects import ConsumerAnswer, GroupEffects
from headwater.groups.event_records import decode, encode
from headwater.groups.events import Event
from headwater.groups.requests import CommitRequest, JoinRequest, LeaveRequest, OffsetToCommit, SyncRequest
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.groups.topics import TopicInfo, TopicTable
from headwater.groups.views import DescribedConsumerGroup
from headwater.groups.visible_topics import TopicRights
from headwater.model.errors import ErrorCode
from tests.groups.driven_group import WALL_MS, at

GROUP = "g"
SESSION_MS = 45_000
REBALANCE_MS = 30_000

__all__ = ["WALL_MS", "at"]


def topic_id(name: str, incarnation: int = 0) -> uuid.UUID:
    return uuid.uuid5(uuid.UUID(int=incarnation), name)


def partitions(topic: str, *indexes: int) -> Assignment:
    return of_partitions((topic_id(topic), index) for index in indexes)


@dataclass
class Consumer:
    """What a client knows. `owned` is what it reads; it gives up and takes when it is told. Its application may be
    slow: then `taking` is what will be owned, whatever is told meanwhile."""

    member_id: str
    instance_id: str | None = None
    topics: tuple[str, ...] | None = ("orders",)
    regex: str | None = None
    assignor: str | None = None
    rights: TopicRights | None = None
    epoch: int = 0
    owned: Assignment = field(default_factory=dict)
    told: Assignment | None = None
    taking: Assignment | None = None
    owes_ack: bool = False
    """It says once what it owned before it began to take."""

    def forget(self) -> None:
        self.owned, self.told, self.taking = {}, None, None

    def indexes(self, topic: str = "orders") -> set[int]:
        return set(self.owned.get(topic_id(topic), frozenset()))


class DrivenConsumers:
    def __init__(self, settings: GroupSettings = GroupSettings(initial_rebalance_delay_ms=0), **topics: int) -> None:
        self.settings = settings
        self.topics = TopicTable()
        for name, count in (topics or {"orders": 4}).items():
            self.topics.put(TopicInfo(name, topic_id(name), count))
        self.shard = GroupShard(settings, self.topics)
        self.log: list[Event] = []
        self.answers: dict[object, Any] = {}
        self.now_ms = 0
        self._tokens = 0

    # One request

    def beat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerAnswer:
        fields = {"instance_id": None, "client_id": "app", "client_host": "/127.0.0.1", **fields}
        request = ConsumerHeartbeat(member_id, epoch, **fields)
        answer: ConsumerAnswer = self.asked(lambda to: self.shard.consumer_heartbeat(GROUP, request, to, self.now))
        return answer

    def join(self, consumer: Consumer) -> None:
        """From nothing: what the client read before is lost to it."""
        consumer.forget()
        answer = self.beat(
            consumer.member_id,
            0,
            instance_id=consumer.instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
            topic_names=consumer.topics,
            topic_regex=consumer.regex,
            server_assignor=consumer.assignor,
            owned={},
            rights=consumer.rights,
        )
        self._learned(consumer, answer)

    def heartbeat(self, consumer: Consumer, says_owned: bool = True, **fields: Any) -> ConsumerAnswer:
        if consumer.taking is not None:
            says_owned, consumer.owes_ack = says_owned and consumer.owes_ack, False
        answer = self.beat(
            consumer.member_id,
            consumer.epoch,
            instance_id=consumer.instance_id,
            owned=consumer.owned if says_owned else None,
            rights=consumer.rights,
            **fields,
        )
        self._learned(consumer, answer)
        return answer

    def leave(self, consumer: Consumer, epoch: int = -1) -> None:
        self.beat(consumer.member_id, epoch, instance_id=consumer.instance_id)
        consumer.epoch = 0
        consumer.forget()

    def commit(self, consumer: Consumer, epoch: int, offset: int = 1) -> ErrorCode:
        request = CommitRequest(
            consumer.member_id, consumer.instance_id, epoch, (OffsetToCommit("orders", 0, offset, -1, ""),)
        )
        (answer,) = self.asked(lambda to: self.shard.commit(GROUP, request, to, self.now))
        error: ErrorCode = answer.error
        return error

    def classic_join(self, request: JoinRequest) -> Any:
        return self.asked(lambda to: self.shard.join(GROUP, request, f"u{to}", to, self.now))

    def classic_sync(self, request: SyncRequest) -> Any:
        return self.asked(lambda to: self.shard.sync(GROUP, request, to, self.now))

    def classic_leave(self, *requests: LeaveRequest) -> Any:
        return self.asked(lambda to: self.shard.leave(GROUP, requests, to, self.now))

    # What clients do

    def begin_to_take(self, consumer: Consumer) -> None:
        """The application is asked to stop and begin to read."""
        if consumer.told is not None and consumer.taking is None:
            consumer.taking, consumer.told, consumer.owes_ack = consumer.told, None, True

    def apply_told(self, consumer: Consumer) -> None:
        """Stop to read what was taken, begin to read what was given."""
        if consumer.taking is not None:
            consumer.owned, consumer.taking = consumer.taking, None
        if consumer.told is not None:
            consumer.owned, consumer.told = consumer.told, None

    def converge(self, *consumers: Consumer, rounds: int = 8) -> None:
        """Everybody heartbeats and does as it is told, until nothing changes any more."""
        for _ in range(rounds):
            for consumer in consumers:
                self.heartbeat(consumer)
                self.apply_told(consumer)

    def joined(self, count: int, **fields: Any) -> list[Consumer]:
        consumers = [Consumer(f"m{number}", **fields) for number in range(count)]
        for consumer in consumers:
            self.join(consumer)
        self.converge(*consumers)
        return consumers

    # Time, restarts, topics

    def pass_ms(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (next_ms := self.shard.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.took(self.shard.tick(self.now))
        self.now_ms = end_ms

    def restart(self) -> None:
        self.shard = self.replayed(self.log)
        self.shard.resume(self.now)

    def replayed(self, log: Iterable[Event]) -> GroupShard:
        shard = GroupShard(self.settings, self.topics)
        for event in log:
            read = decode(*encode(event))
            assert read == event
            shard.apply(read)
        return shard

    def put_topic(self, name: str, count: int, incarnation: int = 0) -> None:
        self.topics.put(TopicInfo(name, topic_id(name, incarnation), count))

    # What is seen

    @property
    def now(self) -> Any:
        return at(self.now_ms)

    @property
    def described(self) -> DescribedConsumerGroup:
        return self.shard.described_consumer(GROUP)

    @property
    def state(self) -> str:
        return self.described.state.value

    @property
    def reasons(self) -> list[str]:
        return [departure.reason.value for departure in self.shard.departures()]

    def asked(self, call: Any) -> Any:
        self._tokens += 1
        self.took(call(self._tokens))
        return self.answers.get(self._tokens)

    def took(self, effects: GroupEffects) -> None:
        self.log += effects.events
        for reply in effects.replies:
            assert reply.to not in self.answers, "a request is answered once"
            self.answers[reply.to] = reply.answer

    def _learned(self, consumer: Consumer, answer: ConsumerAnswer) -> None:
        consumer.epoch = answer.epoch
        if answer.assigned is not None:
            consumer.told = answer.assigned
