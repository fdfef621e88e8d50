"""The share groups of one shard: finds the group, asks it, keeps its deadlines.

The same contract as the shard's: decisions are applied already when their effects are returned.
"""

from collections.abc import Iterator

from headwater.groups.effects import GroupEffects, ReplyTo
from headwater.groups.events import ShareEvent, ShareGroupDeleted, ShareGroupStored
from headwater.groups.rebalance import GroupState
from headwater.groups.share import JOIN_EPOCH, ShareGroup, ShareHeartbeat, ShareSettings, TopicView
from headwater.model.deadlines import Deadlines
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment

MAX_DEPARTED = 100_000
"""Departed members whose records are still to be released; records of more wait for the end of their leases."""


class ShareGroupTable:
    def __init__(self) -> None:
        self._groups: dict[str, ShareGroup] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        self._departed: list[tuple[str, str]] = []
        self._group_bytes: dict[str, int] = {}
        self.size_bytes = 0

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def __iter__(self) -> Iterator[ShareGroup]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, group_id: str) -> ShareGroup | None:
        return self._groups.get(group_id)

    def apply(self, event: ShareEvent) -> None:
        if isinstance(event, ShareGroupDeleted):
            self._groups.pop(event.group_id, None)
            self._deadlines.clear(event.group_id)
            self.size_bytes -= self._group_bytes.pop(event.group_id, 0)
            return
        group = self._groups.get(event.group_id)
        if group is None:
            group = self._groups[event.group_id] = ShareGroup(event.group_id)
        group.apply(event)

    def resume(self, now: Moment) -> None:
        for group in self._groups.values():
            group.resume(now)
            self._note(group)

    def heartbeat(
        self,
        group_id: str,
        request: ShareHeartbeat,
        settings: ShareSettings,
        topics: TopicView,
        to: ReplyTo,
        now: Moment,
    ) -> GroupEffects:
        request.check()
        group = self._groups.get(group_id)
        if group is None:
            if request.epoch != JOIN_EPOCH:
                raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            group = ShareGroup(group_id)
        answer, effects = group.heartbeat(request, settings, topics, now)
        self._groups[group_id] = group
        if answer.epoch < 0:
            self._note_departed(group_id, request.member_id)
        self._note(group)
        effects.reply(to, answer)
        return effects

    def create(self, group_id: str, to: ReplyTo) -> GroupEffects:
        """Create a group without members, unless it exists."""
        effects = GroupEffects()
        if group_id not in self._groups:
            event = ShareGroupStored(group_id, 0)
            effects.events.append(event)
            self.apply(event)
        effects.reply(to, ErrorCode.NONE)
        return effects

    def delete(self, group_id: str, to: ReplyTo) -> GroupEffects:
        group = self._groups[group_id]
        if group.state is not GroupState.EMPTY:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP)
        effects = GroupEffects()
        for event in list(group.deleted()):
            effects.events.append(event)
            self.apply(event)
        effects.reply(to, ErrorCode.NONE)
        return effects

    def doubt(self, group_id: str, member_id: str, settings: ShareSettings, now: Moment) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            group.doubt(member_id, settings, now)
            self._note(group)

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def tick(self, now: Moment) -> GroupEffects:
        effects = GroupEffects()
        while (group_id := self._deadlines.take_due(now.monotonic_ms)) is not None:
            group = self._groups[group_id]
            gone, more = group.tick(now)
            for member_id in gone:
                self._note_departed(group_id, member_id)
            effects.add(more)
            self._note(group)
        return effects

    def take_departed(self) -> list[tuple[str, str]]:
        """The (group, member) pairs that departed since the last call."""
        departed, self._departed = self._departed, []
        return departed

    def _note_departed(self, group_id: str, member_id: str) -> None:
        if len(self._departed) < MAX_DEPARTED:
            self._departed.append((group_id, member_id))

    def _note(self, group: ShareGroup) -> None:
        self.size_bytes += group.size_bytes - self._group_bytes.get(group.group_id, 0)
        self._group_bytes[group.group_id] = group.size_bytes
        at_ms = group.next_deadline_ms()
        if at_ms is None:
            self._deadlines.clear(group.group_id)
        else:
            self._deadlines.set(group.group_id, at_ms)
