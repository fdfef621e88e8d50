"""A shard whose offsets are committed by hand, inside transactions and outside, with the log that this makes."""

import uuid
from collections.abc import Iterable
from typing import Any

from headwater.groups.consumer_requests import ConsumerHeartbeat
from headwater.groups.effects import GroupEffects
from headwater.groups.event_records import decode, encode
from headwater.groups.events import Event
from headwater.groups.requests import CommitRequest, OffsetToCommit, SyncRequest
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.groups.topics import TopicInfo, TopicTable
from headwater.model.errors import ErrorCode
from tests.groups.driven_group import at, join_request

HOUR_MS = 3_600_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, offsets_retention_ms=HOUR_MS)


class DrivenOffsets:
    def __init__(self, settings: GroupSettings = SETTINGS, topics: TopicTable | None = None) -> None:
        self.settings = settings
        self.topics = topics or TopicTable()
        self.shard = GroupShard(settings, self.topics)
        self.log: list[Event] = []

    # Commits of a consumer that assigns itself, unless they say otherwise

    def commit(self, *offsets: tuple[str, int, int], group_id: str = "g", **who: Any) -> list[ErrorCode]:
        return self._errors(self.shard.commit(group_id, commit_request(*offsets, **who), "t", at(0)))

    def pend(
        self, producer_id: int, *offsets: tuple[str, int, int], epoch: int = 0, group_id: str = "g", **who: Any
    ) -> list[ErrorCode]:
        request = commit_request(*offsets, **who)
        return self._errors(self.shard.commit_in_transaction(group_id, request, producer_id, epoch, "t", at(0)))

    def end_transaction(self, producer_id: int, is_commit: bool = True, epoch: int = 0) -> list[Event]:
        effects = self.shard.end_transaction(producer_id, epoch, is_commit, "t")
        assert answer(effects) is ErrorCode.NONE
        self.log += effects.events
        return effects.events

    # What is seen

    def offset(self, topic: str, partition: int, group_id: str = "g") -> int | None:
        """What counts."""
        (found,) = self.shard.found_offsets(group_id, [(topic, partition)])
        return found.committed.offset if found.committed is not None else None

    def is_pending(self, topic: str, partition: int, group_id: str = "g") -> bool:
        (found,) = self.shard.found_offsets(group_id, [(topic, partition)])
        return found.is_pending

    # Restarts

    def restart(self, log: Iterable[Event] | None = None) -> None:
        """From the log as it is, or from that which a crash or compaction has left of it."""
        self.log = list(self.log if log is None else log)
        self.shard = self.replayed(self.log)
        self.shard.resume(at(0))

    def replayed(self, log: Iterable[Event]) -> GroupShard:
        shard = GroupShard(self.settings, self.topics)
        for event in log:
            read = decode(*encode(event))
            assert read == event
            shard.apply(read)
        return shard

    # Members

    def classic_member(self, group_id: str = "g") -> str:
        """The only member of a stable classic group; in a new group the generation is 1."""
        join = self.shard.join(group_id, join_request(needs_known_id=False), "u", "t", at(0))
        joined = answer(join)
        request = SyncRequest(joined.member_id, None, joined.generation, None, None, {})
        self.log += join.events + self.shard.sync(group_id, request, "t", at(0)).events
        member_id: str = joined.member_id
        return member_id

    def consumer_member(self, group_id: str = "g", member_id: str = "m", **fields: Any) -> int:
        """The only member of a group of the new protocol; returns its epoch."""
        request = ConsumerHeartbeat(
            member_id, 0, None, "app", "/h", rebalance_timeout_ms=1_000, topic_names=("orders",), owned={}, **fields
        )
        effects = self.shard.consumer_heartbeat(group_id, request, "t", at(0))
        self.log += effects.events
        epoch: int = answer(effects).epoch
        return epoch

    def _errors(self, effects: GroupEffects) -> list[ErrorCode]:
        self.log += effects.events
        return [each.error for each in answer(effects)]


def commit_request(
    *offsets: tuple[str, int, int], member_id: str = "", instance_id: str | None = None, generation: int = -1
) -> CommitRequest:
    each = tuple(OffsetToCommit(topic, partition, offset, -1, "") for topic, partition, offset in offsets)
    return CommitRequest(member_id, instance_id, generation, each)


def answer(effects: GroupEffects, to: object = "t") -> Any:
    (found,) = [reply.answer for reply in effects.replies if reply.to == to]
    return found


def compacted(log: list[Event]) -> list[Event]:
    """The last event of each key, in the order of the log, as compaction leaves it."""
    last = {encode(event)[0]: position for position, event in enumerate(log)}
    return [log[position] for position in sorted(last.values())]


def orders_topics() -> TopicTable:
    topics = TopicTable()
    topics.put(TopicInfo("orders", uuid.UUID(int=1), 4))
    return topics
