"""Who may take a record of a key: the order of key-ordered sharing.

A lane holds the offsets of one key that are read and not settled. A member may take one if it already holds all lower
ones of the lane and nobody holds a higher one; from this follows that only one member holds records of a key, that it
gets them by rising offset, and that a failed record comes again before any that follows it.
"""

from bisect import bisect_left


class _Lane:
    __slots__ = ("held", "highest_held", "holder", "offsets")

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.held: set[int] = set()
        self.highest_held = -1
        self.holder = ""


class KeyLanes:
    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes: dict[bytes, _Lane] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def join(self, key: bytes, offset: int) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        if not lane.offsets or offset > lane.offsets[-1]:
            lane.offsets.append(offset)
        elif lane.offsets[index := bisect_left(lane.offsets, offset)] != offset:
            lane.offsets.insert(index, offset)

    def leave(self, key: bytes, offset: int) -> None:
        """The record is settled, or not read any more. One that never joined is no matter."""
        lane = self._lanes.get(key)
        if lane is None:
            return
        index = bisect_left(lane.offsets, offset)
        if index < len(lane.offsets) and lane.offsets[index] == offset:
            del lane.offsets[index]
            _let_go(lane, offset)
        if not lane.offsets:
            del self._lanes[key]

    def may_take(self, key: bytes, offset: int, member_id: str) -> bool:
        lane = self._lanes.get(key)
        if lane is None:
            return True
        if lane.held and (lane.holder != member_id or lane.highest_held > offset):
            return False
        return len(lane.held) == bisect_left(lane.offsets, offset)

    def take(self, key: bytes, offset: int, member_id: str) -> None:
        lane = self._lanes[key]
        assert not lane.held or lane.holder == member_id, "one member holds all that is held of a key"
        lane.holder = member_id
        lane.held.add(offset)
        lane.highest_held = max(lane.highest_held, offset)

    def give_back(self, key: bytes, offset: int) -> None:
        lane = self._lanes.get(key)
        if lane is not None:
            _let_go(lane, offset)

    def free_head(self, key: bytes) -> int | None:
        """The offset that anybody may take now: the lowest, when none is held."""
        lane = self._lanes.get(key)
        return lane.offsets[0] if lane is not None and not lane.held else None


def _let_go(lane: _Lane, offset: int) -> None:
    lane.held.discard(offset)
    if offset == lane.highest_held:
        lane.highest_held = max(lane.held, default=-1)
