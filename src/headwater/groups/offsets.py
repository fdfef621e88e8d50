"""The committed offsets of a group of any kind.

`apply` alone changes them. A commit replaces what was there, also with a smaller offset: going back is a client's
right (seek, reset), and the order of the log is the order of the commits.
"""

from collections.abc import Iterator

from headwater.groups.events import CommittedOffset, OffsetCommitted, OffsetDeleted


class GroupOffsets:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._topics: dict[str, dict[int, CommittedOffset]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._topics.values()))

    def __bool__(self) -> bool:
        return bool(self._topics)

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self._topics.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self._topics.get(topic, {}).get(partition)

    def topics(self) -> list[str]:
        return list(self._topics)

    def partitions(self, topic: str) -> list[int]:
        return list(self._topics.get(topic, ()))

    def apply(self, event: OffsetCommitted | OffsetDeleted) -> None:
        if isinstance(event, OffsetCommitted):
            self._topics.setdefault(event.topic, {})[event.partition] = event.committed
            return
        partitions = self._topics.get(event.topic, {})
        partitions.pop(event.partition, None)
        if not partitions:
            self._topics.pop(event.topic, None)

    def expired(
        self, now_ms: int, retention_ms: int, unused_since_ms: int, still_read: frozenset[str]
    ) -> list[OffsetDeleted]:
        """The deletion of offsets that outlived their retention (KIP-211).

        Retention counts from the commit, or from when the group stopped reading if that was later. What the group
        still reads does not expire. A time that the client set itself when it committed goes before both."""
        return [
            OffsetDeleted(self.group_id, topic, partition)
            for topic, partition, committed in self
            if topic not in still_read and _expires_ms(committed, retention_ms, unused_since_ms) <= now_ms
        ]

    def deleted(self, topic: str | None = None) -> list[OffsetDeleted]:
        """What to log to delete all offsets, or all of one topic."""
        topics = self.topics() if topic is None else [topic]
        return [OffsetDeleted(self.group_id, each, partition) for each in topics for partition in self.partitions(each)]


def _expires_ms(committed: CommittedOffset, retention_ms: int, unused_since_ms: int) -> int:
    if committed.expire_timestamp_ms is not None:
        return committed.expire_timestamp_ms
    return max(committed.commit_timestamp_ms, unused_since_ms) + retention_ms
