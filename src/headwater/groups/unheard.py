"""Members that a coordinator knows from its log only: it has just started, and they have sent nothing yet.

Most come back with their member ids, within a heartbeat or two. Some never will: a client that could not reach its
coordinator for a whole session joins as a new member, and so does a program that was started again meanwhile. A
rebalance that waited for these as for others would take a whole session, after each restart.

- Without a rebalance an unheard member has its whole session.
- In a rebalance an unheard member has a third of its session, in which a client sends a heartbeat at least, but not
  less than MIN_WAIT_MS.
- For each newcomer with the same client id and host one of them is taken for its former self, and has RETURN_MS. If
  that is wrong, the member is refused when it comes, and joins anew.
- Static members are not among them: their places are kept (KIP-345).
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from headwater.groups.members import ClassicMember

MIN_WAIT_MS: Final = 10_000
"""Clients that lost their connection may wait as long before they try again."""
RETURN_MS: Final = 3_000
"""A heartbeat's usual interval."""


class Unheard:
    def __init__(self) -> None:
        self._since_ms = 0
        self._due_ms: dict[str, int] = {}
        """When a rebalance stops waiting for each member."""
        self._by_origin: dict[tuple[str, str], list[str]] = defaultdict(list)

    def recall(self, member: ClassicMember, now_ms: int) -> None:
        """A member was read from the log."""
        if member.instance_id is not None:
            return
        session_ms = member.session_timeout_ms
        self._since_ms = now_ms
        self._due_ms[member.member_id] = now_ms + min(max(session_ms // 3, MIN_WAIT_MS), session_ms)
        self._by_origin[member.client_id, member.client_host].append(member.member_id)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._due_ms

    def heard_of(self, member_id: str) -> None:
        self._due_ms.pop(member_id, None)

    def due(self) -> Iterator[tuple[str, int]]:
        """Each unheard member with the time until which a rebalance waits for it."""
        return iter(list(self._due_ms.items()))

    def came(self, newcomer: ClassicMember) -> tuple[str, int] | None:
        """A new member has joined: the unheard member that it probably was before, and until when to wait for that
        one."""
        former = self._by_origin.get((newcomer.client_id, newcomer.client_host), [])
        while former:
            member_id = former.pop()
            if member_id in self._due_ms:
                self._due_ms[member_id] = min(self._due_ms[member_id], self._since_ms + RETURN_MS)
                return member_id, self._due_ms[member_id]
        return None
