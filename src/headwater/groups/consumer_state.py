"""The durable state of a consumer group: `apply` changes it, and a replay of the log gives it back.

Beside the events themselves it keeps what follows from them and is looked up often: which member owns a partition,
which instance is which member, how many members name a topic.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from headwater.groups.assignment import NOTHING, Assignment, union
from headwater.groups.consumer_events import (
    ConsumerDeleted,
    ConsumerEvent,
    ConsumerGroupDeleted,
    ConsumerGroupStored,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentDeleted,
    CurrentStored,
    TargetDeleted,
    TargetEpochDeleted,
    TargetEpochStored,
    TargetStored,
)
from headwater.model.ids import TopicId


class ConsumerState:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMemberStored] = {}
        self.targets: dict[str, Assignment] = {}
        self.topic_names: Counter[str] = Counter()
        """How many members name each topic."""
        self.topic_regexes: Counter[str] = Counter()
        self.classic_members = 0
        self.size_bytes = 0
        """Size of what the members said of themselves."""
        self._currents: dict[str, CurrentStored] = {}
        self._by_instance: dict[str, str] = {}
        self._owners: dict[TopicId, dict[int, str]] = {}

    def current(self, member_id: str) -> CurrentStored:
        """What the member has; a member that was never assigned anything is at epoch 0."""
        return self._currents.get(member_id) or CurrentStored(group_id=self.group_id, member_id=member_id)

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    def id_of_instance(self, instance_id: str) -> str | None:
        return self._by_instance.get(instance_id)

    def owner(self, topic_id: TopicId, index: int) -> str | None:
        """The member that has the partition, or has not yet confirmed that it gave it up."""
        return self._owners.get(topic_id, {}).get(index)

    def durable(self) -> tuple[Any, ...]:
        """The state that a replay of the log must bring back, for comparison."""
        return self.epoch, self.metadata_hash, self.target_epoch, self.members, self.targets, self._currents

    def apply(self, event: ConsumerEvent) -> None:
        match event:
            case ConsumerGroupStored(_, epoch, metadata_hash):
                self.epoch, self.metadata_hash = epoch, metadata_hash
            case ConsumerGroupDeleted():
                self.epoch = self.metadata_hash = 0
            case TargetEpochStored(_, epoch):
                self.target_epoch = epoch
            case TargetEpochDeleted():
                self.target_epoch = 0
            case TargetStored(_, member_id, partitions):
                self.targets[member_id] = partitions
            case TargetDeleted(_, member_id):
                self.targets.pop(member_id, None)
            case ConsumerMemberStored():
                self._forget_member(event.member_id)
                self._note_member(event)
            case ConsumerMemberDeleted(_, member_id):
                self._forget_member(member_id)
            case CurrentStored():
                self._disown(event.member_id)
                self._currents[event.member_id] = event
                self._own(event)
            case CurrentDeleted(_, member_id):
                self._disown(member_id)
                self._currents.pop(member_id, None)

    def member_deletions(self, member_id: str) -> Iterator[ConsumerDeleted]:
        """What to log to forget a member."""
        if member_id in self._currents:
            yield CurrentDeleted(self.group_id, member_id)
        if member_id in self.targets:
            yield TargetDeleted(self.group_id, member_id)
        yield ConsumerMemberDeleted(self.group_id, member_id)

    def deletions(self) -> Iterator[ConsumerDeleted]:
        """What to log to forget the group: its own key last, so that a log cut short still names it."""
        for member_id in list(dict.fromkeys([*self.members, *self.targets, *self._currents])):
            yield from self.member_deletions(member_id)
        yield TargetEpochDeleted(self.group_id)
        yield ConsumerGroupDeleted(self.group_id)

    def _note_member(self, member: ConsumerMemberStored) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.member_id
        self.topic_names.update(member.topic_names)
        if member.topic_regex:
            self.topic_regexes[member.topic_regex] += 1
        self.classic_members += member.classic is not None
        self.size_bytes += size_bytes(member)

    def _forget_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.instance_id is not None and self._by_instance.get(member.instance_id) == member_id:
            del self._by_instance[member.instance_id]
        for name in member.topic_names:
            _count_down(self.topic_names, name)
        if member.topic_regex:
            _count_down(self.topic_regexes, member.topic_regex)
        self.classic_members -= member.classic is not None
        self.size_bytes -= size_bytes(member)

    def _own(self, current: CurrentStored) -> None:
        for topic_id, indexes in union(current.assigned, current.revoking).items():
            self._owners.setdefault(topic_id, {}).update(dict.fromkeys(indexes, current.member_id))

    def _disown(self, member_id: str) -> None:
        current = self._currents.get(member_id)
        if current is None:
            return
        for topic_id, indexes in union(current.assigned, current.revoking).items():
            owners = self._owners.get(topic_id, {})
            for index in indexes:
                # These bytes may not be ours: two records may claim one partition.
                if owners.get(index) == member_id:
                    del owners[index]
            if not owners:
                self._owners.pop(topic_id, None)


def size_bytes(member: ConsumerMemberStored) -> int:
    names = sum(len(name) for name in member.topic_names) + len(member.topic_regex or "")
    protocols = member.classic.protocols if member.classic is not None else ()
    return names + sum(len(name) + len(metadata) for name, metadata in protocols)


def _count_down(counter: Counter[str], name: str) -> None:
    counter[name] -= 1
    if not counter[name]:
        del counter[name]
