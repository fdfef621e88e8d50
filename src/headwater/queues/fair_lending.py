"""How much of a queue one member is lent while others of its group want some, too.

A member that is alone takes what its fetch asks for, in whole batches. When others wait, it is lent its part: what is
ready, divided by the members that want it, and never more than its fetch asks for, even if a batch is divided for that.
Members that work will want some soon. So a member that had nothing to do is lent no more than would be its own if all
that is ready or lent were divided by all; and a member that comes back from work while no other waits is lent its part
of what is left, so that the first to finish does not take all of it.

Dividing a batch costs more than sending it whole, and members that are quick gain nothing by it: what one of them would
be through with in `QUICK_MS` it is lent at once. How fast a member is, is seen from when it took records and
acknowledged them. But once a member has waited for longer than that, parts are parts, however quick the others are.

- Waiting is a fetch that found nothing and stays, and for `ABSENT_MS` after its end the member that sent it, which will
  ask again. Working is a member that took or acknowledged something within the time of a lease.
- Of records never looked at, as many count as ready as of those before: a filter or delays may leave few of them.
- `now_ms` must not run backwards. All work is for a request, none for a record.
"""

from dataclasses import dataclass
from typing import Final

QUICK_MS: Final = 200
ABSENT_MS: Final = 1_000
_GUESSED_FRESH: Final = 10.0
"""Records of which a filter that was never used is taken to leave one."""


@dataclass(frozen=True, slots=True)
class Supply:
    """What a share partition has to lend."""

    ready: int
    """Looked at before, and available now."""
    fresh: int
    """Offsets behind the end: how many of them hold a record for the group is not known."""
    room: int
    """Records that may be lent before some are acknowledged."""
    lent: int = 0
    """Records that members hold."""


@dataclass(slots=True)
class _Pace:
    """How fast a member acknowledges what it takes; what is long past counts little."""

    since_ms: int
    """When it last took or acknowledged something."""
    spent_ms: float = 0
    resolved: float = 0


class FairLending:
    __slots__ = ("_absent", "_fresh", "_taken", "_waiting", "_working")

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        """Since when; the longest waiting first."""
        self._absent: dict[str, int] = {}
        """Those of them that do not ask just now, and since when; the longest absent first."""
        self._working: dict[str, _Pace] = {}
        """The longest silent first."""
        self._fresh = self._taken = 0.0

    def begin(self, has_filter: bool) -> None:
        """A filter came or went. How many records it leaves is not known yet: few, until the first were looked at, so
        that the first member does not take all that it leaves."""
        self._fresh, self._taken = (_GUESSED_FRESH, 1.0) if has_filter else (0.0, 0.0)

    # What members do

    def waits(self, member_id: str, now_ms: int) -> None:
        """Its fetch found nothing, and stays."""
        self._waiting.setdefault(member_id, now_ms)
        self._absent.pop(member_id, None)

    def went(self, member_id: str, now_ms: int) -> None:
        """Its fetch waits no longer: it looks again, or has ended."""
        if member_id in self._waiting:
            self._absent.pop(member_id, None)
            self._absent[member_id] = now_ms
        self._forget_absent(now_ms)

    def served(self, member_id: str) -> None:
        """It has got something, here or elsewhere."""
        self._waiting.pop(member_id, None)
        self._absent.pop(member_id, None)

    def took(self, member_id: str, count: int, fresh: int, now_ms: int) -> None:
        """`fresh` offsets were looked at for the first time."""
        if fresh:
            self._fresh = self._fresh / 2 + fresh
            self._taken = self._taken / 2 + min(count, fresh)
        if count:
            self.served(member_id)
            pace = self._working.pop(member_id, None) or _Pace(now_ms)
            pace.since_ms = now_ms
            self._working[member_id] = pace

    def resolved(self, member_id: str, count: int, now_ms: int) -> None:
        pace = self._working.get(member_id)
        if pace is None or not count:
            return
        del self._working[member_id]
        pace.spent_ms = pace.spent_ms / 2 + now_ms - pace.since_ms
        pace.resolved = pace.resolved / 2 + count
        pace.since_ms = now_ms
        self._working[member_id] = pace

    def gone(self, member_id: str) -> None:
        self.served(member_id)
        self._working.pop(member_id, None)

    # What follows from it

    def part(self, member_id: str, supply: Supply, max_records: int, lease_ms: int, now_ms: int) -> int | None:
        """How many records the member is lent at most, dividing batches where needed. None: what it asks for."""
        self._forget_absent(now_ms)
        self._forget_silent(now_ms - lease_ms)
        waiting = len(self._waiting) - (member_id in self._waiting)
        members = len(self._waiting.keys() | self._working.keys() | {member_id})
        if members == 1:
            return None
        ready = self._ready(supply)
        if waiting or member_id in self._waiting or member_id not in self._working:
            part = max(min(_divided(ready, waiting + 1), _divided(ready + supply.lent, members)), 1)
        else:
            part = max(_divided(ready, members), 1)
        if not waiting or now_ms - self._others_wait_since(member_id) < QUICK_MS:
            quick = self._quick_count(member_id, max_records)
            if quick >= max_records:
                return None
            part = max(part, quick)
        return min(part, max_records)

    def _ready(self, supply: Supply) -> int:
        fresh = supply.fresh
        if self._taken < self._fresh:
            fresh = int(fresh * self._taken / self._fresh)
        return min(supply.ready + fresh, supply.room)

    def _quick_count(self, member_id: str, most: int) -> int:
        """How many records the member is through with in a turn, as far as is known."""
        pace = self._working.get(member_id)
        if pace is None or not pace.resolved:
            return 0
        return (
            most if pace.spent_ms * most <= QUICK_MS * pace.resolved else int(QUICK_MS * pace.resolved / pace.spent_ms)
        )

    def _others_wait_since(self, member_id: str) -> int:
        return next(since_ms for each, since_ms in self._waiting.items() if each != member_id)

    def _forget_absent(self, now_ms: int) -> None:
        while self._absent:
            member_id = next(iter(self._absent))
            if now_ms - self._absent[member_id] < ABSENT_MS:
                return
            self.served(member_id)

    def _forget_silent(self, until_ms: int) -> None:
        while self._working:
            member_id = next(iter(self._working))
            if self._working[member_id].since_ms > until_ms:
                return
            del self._working[member_id]


def _divided(count: int, by: int) -> int:
    """Rounded up."""
    return -(-count // by)
