"""Which topics a consumer group reads: those its members name, and those its patterns match.

A pattern is matched against each topic once, when either of them is new. Nothing here is durable: matches are
computed again, and the hash that the group stores tells whether topics changed meanwhile.
"""

import hashlib

from headwater.groups.consumer_events import ConsumerMemberStored
from headwater.groups.consumer_state import ConsumerState
from headwater.groups.topic_patterns import TopicPattern
from headwater.groups.topics import TopicInfo, TopicTable
from headwater.model.errors import RequestError

_HASH_BYTES = 8


class ConsumerTopics:
    def __init__(self, state: ConsumerState, topics: TopicTable) -> None:
        self._state = state
        self._topics = topics
        self._seen_version = -1
        self._matched: dict[str, tuple[TopicPattern | None, set[str]]] = {}

    def may_have_changed(self) -> bool:
        """Whether a topic that the group reads was created, changed or deleted since the last call."""
        if self._seen_version == self._topics.version:
            return False
        changed = self._topics.changed_since(self._seen_version) if self._seen_version >= 0 else None
        self._seen_version = self._topics.version
        if changed is None:
            self._matched.clear()
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
        return is_read

    def of_member(self, member: ConsumerMemberStored) -> frozenset[str]:
        """The topics that the member reads, whether they exist or not."""
        named = frozenset(member.topic_names)
        return named | self._matching(member.topic_regex) if member.topic_regex else named

    def of_group(self) -> frozenset[str]:
        names = set(self._state.topic_names)
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
