"""What groups know of the topics: their names, ids and how many partitions they have.

The catalog of topics writes here; groups only read. `version` rises with each change, so that a group sees by one
comparison that nothing changed, and `changed_since` names what did.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from headwater.model.ids import TopicId

MAX_REMEMBERED_CHANGES = 1_000
"""A group that missed more changes looks at all topics again."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: TopicId
    partitions: int


class TopicTable:
    def __init__(self) -> None:
        self.version = 0
        self._by_name: dict[str, TopicInfo] = {}
        self._by_id: dict[TopicId, TopicInfo] = {}
        self._changed: deque[str] = deque(maxlen=MAX_REMEMBERED_CHANGES)

    def __iter__(self) -> Iterator[TopicInfo]:
        return iter(self._by_name.values())

    def find(self, name: str) -> TopicInfo | None:
        return self._by_name.get(name)

    def find_id(self, topic_id: TopicId) -> TopicInfo | None:
        return self._by_id.get(topic_id)

    def put(self, topic: TopicInfo) -> None:
        """Add a topic, or replace it after its partitions changed."""
        self._drop(topic.name)
        self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        self._note(topic.name)

    def remove(self, name: str) -> None:
        self._drop(name)
        self._note(name)

    def changed_since(self, version: int) -> frozenset[str] | None:
        """The names of topics that changed after that version; None if it is too long ago to know."""
        missed = self.version - version
        if missed > len(self._changed):
            return None
        return frozenset(islice(reversed(self._changed), missed))

    def _drop(self, name: str) -> None:
        before = self._by_name.pop(name, None)
        if before is not None:
            del self._by_id[before.topic_id]

    def _note(self, name: str) -> None:
        self.version += 1
        self._changed.append(name)
