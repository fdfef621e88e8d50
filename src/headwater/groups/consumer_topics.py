"""Which topics a consumer group reads: those its members name, and those its patterns match.

A pattern is matched against each topic once, when either of them is new; where clients need not see every topic, a
member reads of the matches what it may see (`visible_topics`). Nothing here is durable: matches are computed again, and
the hash that the group stores tells whether topics changed meanwhile.
"""

import hashlib
from collections.abc import Set

from headwater.groups.consumer_events import ConsumerMemberStored
from headwater.groups.consumer_state import ConsumerState
from headwater.groups.settings import GroupSettings
from headwater.groups.topic_patterns import TopicPattern
from headwater.groups.topics import TopicInfo, TopicTable
from headwater.groups.visible_topics import NO_NAMES, TopicRights, VisibleTopics
from headwater.model.errors import RequestError

_HASH_BYTES = 8
_NO_RIGHTS = TopicRights(None, 0, lambda name: False)


class ConsumerTopics:
    def __init__(self, state: ConsumerState, settings: GroupSettings, topics: TopicTable) -> None:
        self._state = state
        self._settings = settings
        self._topics = topics
        self._seen_version = -1
        self._matched: dict[str, tuple[TopicPattern | None, set[str]]] = {}
        self._visible = VisibleTopics()

    def may_have_changed(self) -> bool:
        """Whether a topic that the group reads was created, changed or deleted since the last call."""
        if self._seen_version == self._topics.version:
            return False
        changed = self._topics.changed_since(self._seen_version) if self._seen_version >= 0 else None
        self._seen_version = self._topics.version
        if changed is None:
            self._matched.clear()
            self._visible.lost_track()
            return True
        is_read = any(name in self._state.topic_names for name in changed)
        for pattern, names in self._matched.values():
            for name in changed:
                if _matches(pattern, self._topics.find(name)):
                    names.add(name)
                    is_read = True
                elif name in names:
                    names.discard(name)
                    is_read = True
        self._visible.topics_changed(changed, self._matching)
        return is_read

    def look(
        self, member: ConsumerMemberStored, before: ConsumerMemberStored | None, rights: TopicRights | None
    ) -> bool:
        """Take over the rights that came with a heartbeat; say whether another assignment may be due for that. `before`
        is the member's former state, or the member that it replaces."""
        if not self._settings.restricts_patterns:
            return False
        if not member.topic_regex:
            self._visible.forget(member.member_id)
            return False
        if rights is None:
            rights = _NO_RIGHTS
        if self._visible.is_known(member, rights):
            return False
        known = self._visible.of_member(before) if before is not None else NO_NAMES
        of_group = self.of_group() if known is None else NO_NAMES
        names = self._visible.look(member, rights, self._matching(member.topic_regex))
        if known is not None or before is None:
            return names != known
        # It was not heard of yet: nothing is due as long as it may keep all that it has, and others read the rest.
        return not self._targeted(before) <= names <= of_group

    def forget(self, member_id: str) -> None:
        """The member is gone."""
        self._visible.forget(member_id)

    def of_member(self, member: ConsumerMemberStored) -> frozenset[str]:
        """The topics that the member reads, whether they exist or not."""
        named = frozenset(member.topic_names)
        return named | self._found_by(member, member.topic_regex) if member.topic_regex else named

    def of_group(self) -> frozenset[str]:
        names = set(self._state.topic_names)
        if self._settings.restricts_patterns and self._state.topic_regexes:
            found = (
                self._found_by(each, each.topic_regex) for each in self._state.members.values() if each.topic_regex
            )
            names.update(*{id(each): each for each in found}.values())
            return frozenset(names)
        for regex in self._state.topic_regexes:
            names |= self._matching(regex)
        return frozenset(names)

    def hash(self) -> int:
        """Hash of the topics that the group reads, as they are now; 0 if none of them exists."""
        digest = hashlib.blake2b(digest_size=_HASH_BYTES)
        is_empty = True
        for name in sorted(self.of_group()):
            topic = self._topics.find(name)
            if topic is not None:
                digest.update(f"{topic.topic_id.hex}.{topic.partitions};".encode())
                is_empty = False
        return 0 if is_empty else int.from_bytes(digest.digest(), "big", signed=True)

    def _found_by(self, member: ConsumerMemberStored, regex: str) -> Set[str]:
        """The topics that the member's pattern stands for."""
        if not self._settings.restricts_patterns:
            return self._matching(regex)
        visible = self._visible.of_member(member)
        return self._targeted(member) & self._matching(regex) if visible is None else visible

    def _targeted(self, member: ConsumerMemberStored) -> frozenset[str]:
        """The topics that the member is to read by the last assignment."""
        topics = map(self._topics.find_id, self._state.target(member.member_id))
        return frozenset(topic.name for topic in topics if topic is not None)

    def _matching(self, regex: str) -> set[str]:
        found = self._matched.get(regex)
        if found is None:
            for unused in [each for each in self._matched if each not in self._state.topic_regexes]:
                del self._matched[unused]
            pattern = _compiled(regex)
            found = self._matched[regex] = (pattern, {each.name for each in self._topics if _matches(pattern, each)})
        return found[1]


def _compiled(regex: str) -> TopicPattern | None:
    """The compiled pattern. Patterns are checked when members join: an invalid one in the log was written by another
    program, and matches nothing."""
    try:
        return TopicPattern(regex)
    except RequestError:
        return None


def _matches(pattern: TopicPattern | None, topic: TopicInfo | None) -> bool:
    return topic is not None and pattern is not None and pattern.matches(topic.name)
