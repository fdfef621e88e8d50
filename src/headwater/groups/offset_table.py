"""The offsets of all groups of one shard: committed ones, and those that wait for the end of a transaction.

The same contract as the shard's: decisions are applied already when their effects are returned. The group has checked
before that the member may commit.

Events of one decision may be torn apart by a crash; their order makes that harmless. What counts is written first, then
what that makes too old is deleted, from the oldest on, and at last what was pending itself. A transaction's outcome is
known to its coordinator, which repeats `end_transaction` until it is answered, and finds what is still to do by what is
still pending. A plain commit that was torn was not answered: it may give way to a transaction that was under way, as if
it had come before it."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from headwater.groups.effects import GroupEffects, OffsetAnswer, ReplyTo
from headwater.groups.events import (
    CommittedOffset,
    OffsetCommitted,
    OffsetDeleted,
    OffsetEvent,
    PendingOffsetDeleted,
    PendingOffsetStored,
)
from headwater.groups.offsets import GroupOffsets
from headwater.groups.pending_offsets import PendingOffsets, deleted
from headwater.groups.requests import CommitRequest, OffsetToCommit
from headwater.groups.settings import GroupSettings
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionName
from headwater.model.moment import Moment

MAX_TIMESTAMP_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The offset of one partition. `committed` is None if there is none."""

    topic: str
    partition: int
    committed: CommittedOffset | None
    is_pending: bool = False
    """An open transaction may change it."""


class OffsetTable:
    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._groups: dict[str, GroupOffsets] = {}
        self.pending = PendingOffsets()

    # What is remembered

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups or group_id in self.pending

    def __iter__(self) -> Iterator[str]:
        yield from self._groups
        yield from (group_id for group_id in self.pending.group_ids() if group_id not in self._groups)

    def __len__(self) -> int:
        return len(self._groups) + sum(group_id not in self._groups for group_id in self.pending.group_ids())

    def committed(self, group_id: str) -> GroupOffsets:
        """The offsets that count, for reading. An unknown group has none."""
        return self._groups.get(group_id) or GroupOffsets(group_id)

    def topics(self) -> set[str]:
        """The topics in which any group has an offset, committed or pending."""
        committed = {topic for offsets in self._groups.values() for topic in offsets.topics()}
        return committed | {pending.topic for pending in self.pending}

    def find(self, group_id: str, partitions: Iterable[PartitionName] | None) -> list[FoundOffset]:
        """What is known of the partitions; None: of all, also of those in which everything is pending."""
        offsets = self.committed(group_id)
        if partitions is None:
            committed = [(topic, partition) for topic, partition, _ in offsets]
            partitions = dict.fromkeys([*committed, *self.pending.partitions(group_id)])
        return [
            FoundOffset(
                topic,
                partition,
                offsets.get(topic, partition),
                self.pending.is_pending(group_id, topic, partition),
            )
            for topic, partition in partitions
        ]

    def apply(self, event: OffsetEvent) -> None:
        if isinstance(event, PendingOffsetStored | PendingOffsetDeleted):
            self.pending.apply(event)
            return
        offsets = self._groups.get(event.group_id)
        if offsets is None:
            if isinstance(event, OffsetDeleted):
                return
            offsets = self._groups[event.group_id] = GroupOffsets(event.group_id)
        offsets.apply(event)
        if not offsets:
            del self._groups[event.group_id]

    # Commits

    def commit(self, group_id: str, request: CommitRequest, to: ReplyTo, now: Moment) -> GroupEffects:
        """Commit the valid offsets; the answer has an error code for each."""
        effects, answers = GroupEffects(), []
        expire_timestamp_ms = None
        if request.retention_ms is not None:
            expire_timestamp_ms = min(now.wall_ms + request.retention_ms, MAX_TIMESTAMP_MS)
        for each in request.offsets:
            error = self._check(each)
            if error is ErrorCode.NONE:
                overtaken = self.pending.at(group_id, each.topic, each.partition)
                committed = _committed(each, now, expire_timestamp_ms)
                self._log(OffsetCommitted(group_id, each.topic, each.partition, committed), effects)
                self._drop(overtaken, effects)
            answers.append(OffsetAnswer(error, each.topic, each.partition))
        effects.reply(to, answers)
        return effects

    def commit_in_transaction(
        self,
        group_id: str,
        request: CommitRequest,
        producer_id: int,
        producer_epoch: int,
        to: ReplyTo,
        now: Moment,
    ) -> GroupEffects:
        """Store offsets that count if the producer's transaction commits. The transaction's coordinator has confirmed
        that the producer has one in this epoch; pending offsets of an earlier epoch belong to none any more, and are
        dropped."""
        if producer_epoch < self.pending.epoch(producer_id):
            raise RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, "A newer instance of the producer has taken over.")
        if len(self.pending) + len(request.offsets) > self._settings.max_pending_offsets:
            raise RequestError(ErrorCode.POLICY_VIOLATION, "The broker has its limit of offsets in open transactions.")
        effects, answers = GroupEffects(), []
        earlier = (each for each in self.pending.of_producer(producer_id) if each.producer_epoch < producer_epoch)
        self._drop(earlier, effects)
        for each in request.offsets:
            error = self._check(each)
            if error is ErrorCode.NONE:
                self._log(
                    PendingOffsetStored(
                        producer_id, producer_epoch, group_id, each.topic, each.partition, _committed(each, now)
                    ),
                    effects,
                )
            answers.append(OffsetAnswer(error, each.topic, each.partition))
        effects.reply(to, answers)
        return effects

    def end_transaction(self, producer_id: int, producer_epoch: int, is_commit: bool, to: ReplyTo) -> GroupEffects:
        """The producer's transaction has ended: its pending offsets count from now on, or vanish. The epoch is that of
        the transaction or a later one. A second call does nothing."""
        if producer_epoch < self.pending.epoch(producer_id):
            raise RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, "The producer has a newer transaction.")
        effects = GroupEffects()
        for each in self.pending.of_producer(producer_id):
            if is_commit:
                self._log(OffsetCommitted(each.group_id, each.topic, each.partition, each.committed), effects)
                self._drop(self.pending.older_than(each), effects)
            self._log(deleted(each), effects)
        effects.reply(to, ErrorCode.NONE)
        return effects

    # The end of offsets

    def delete(
        self, group_id: str, partitions: Iterable[PartitionName], subscribed: Collection[str] | None, to: ReplyTo
    ) -> GroupEffects:
        """Delete offsets, but none of `subscribed` topics; None: the group may read any topic."""
        effects, answers = GroupEffects(), []
        for topic, partition in partitions:
            error = ErrorCode.NONE
            if subscribed is None or topic in subscribed:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                if self.committed(group_id).get(topic, partition) is not None:
                    self._log(OffsetDeleted(group_id, topic, partition), effects)
                self._drop(self.pending.at(group_id, topic, partition), effects)
            answers.append(OffsetAnswer(error, topic, partition))
        effects.reply(to, answers)
        return effects

    def forget_topic(self, topic: str) -> GroupEffects:
        """The topic was deleted: delete every offset in it."""
        effects = GroupEffects()
        for offsets in list(self._groups.values()):
            self._log_all(offsets.deleted(topic), effects)
        self._drop([pending for pending in self.pending if pending.topic == topic], effects)
        return effects

    def forget_group(self, group_id: str) -> GroupEffects:
        effects = GroupEffects()
        self._log_all(self.committed(group_id).deleted(), effects)
        self._drop(list(self.pending.of_group(group_id)), effects)
        return effects

    def expire(self, group_id: str, now: Moment, unused_since_ms: int, still_read: frozenset[str]) -> GroupEffects:
        """Delete offsets that outlived their retention, except where a transaction has one pending."""
        effects = GroupEffects()
        retention_ms = self._settings.offsets_retention_ms
        for event in self.committed(group_id).expired(now.wall_ms, retention_ms, unused_since_ms, still_read):
            if not self.pending.is_pending(group_id, event.topic, event.partition):
                self._log(event, effects)
        return effects

    # Inside

    def _check(self, offset: OffsetToCommit) -> ErrorCode:
        if len(offset.metadata.encode(errors="replace")) > self._settings.max_offset_metadata_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def _drop(self, pending: Iterable[PendingOffsetStored], effects: GroupEffects) -> None:
        for each in pending:
            self._log(deleted(each), effects)

    def _log_all(self, events: Iterable[OffsetEvent], effects: GroupEffects) -> None:
        for event in events:
            self._log(event, effects)

    def _log(self, event: OffsetEvent, effects: GroupEffects) -> None:
        effects.events.append(event)
        self.apply(event)


def _committed(offset: OffsetToCommit, now: Moment, expire_timestamp_ms: int | None = None) -> CommittedOffset:
    return CommittedOffset(offset.offset, offset.leader_epoch, offset.metadata, now.wall_ms, expire_timestamp_ms)
