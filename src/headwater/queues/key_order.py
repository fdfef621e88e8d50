"""Who may take a record of a key: the order of key-ordered sharing.

The offsets of a key that are read and not resolved are in order. A member may take one if it already holds all lower
ones of the key and no member holds a higher one; from this follows that only one member holds records of a key, that it
gets them by rising offset, and that a failed record comes again before any that follows it.
"""

from bisect import bisect_left

from headwater.model.ids import Offset


class _KeyQueue:
    __slots__ = ("held", "highest_held", "holder", "offsets")

    def __init__(self) -> None:
        self.offsets: list[Offset] = []
        self.held: set[Offset] = set()
        self.highest_held = -1
        self.holder = ""


class KeyOrder:
    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[bytes, _KeyQueue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def join(self, key: bytes, offset: Offset) -> None:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _KeyQueue()
        if not queue.offsets or offset > queue.offsets[-1]:
            queue.offsets.append(offset)
        elif queue.offsets[index := bisect_left(queue.offsets, offset)] != offset:
            queue.offsets.insert(index, offset)

    def leave(self, key: bytes, offset: Offset) -> None:
        """The record is resolved, or not read any more. One that never joined is no matter."""
        queue = self._queues.get(key)
        if queue is None:
            return
        index = bisect_left(queue.offsets, offset)
        if index < len(queue.offsets) and queue.offsets[index] == offset:
            del queue.offsets[index]
            _let_go(queue, offset)
        if not queue.offsets:
            del self._queues[key]

    def may_take(self, key: bytes, offset: Offset, member_id: str) -> bool:
        queue = self._queues.get(key)
        if queue is None:
            return True
        if queue.held and (queue.holder != member_id or queue.highest_held > offset):
            return False
        return len(queue.held) == bisect_left(queue.offsets, offset)

    def take(self, key: bytes, offset: Offset, member_id: str) -> None:
        queue = self._queues[key]
        assert not queue.held or queue.holder == member_id, "one member holds all that is held of a key"
        queue.holder = member_id
        queue.held.add(offset)
        queue.highest_held = max(queue.highest_held, offset)

    def give_back(self, key: bytes, offset: Offset) -> None:
        queue = self._queues.get(key)
        if queue is not None:
            _let_go(queue, offset)

    def free_head(self, key: bytes) -> Offset | None:
        """The offset that anybody may take now: the lowest, when none is held."""
        queue = self._queues.get(key)
        return queue.offsets[0] if queue is not None and not queue.held else None


def _let_go(queue: _KeyQueue, offset: Offset) -> None:
    queue.held.discard(offset)
    if offset == queue.highest_held:
        queue.highest_held = max(queue.held, default=-1)
