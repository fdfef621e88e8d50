"""Events that are still to be written: few, however many happen.

The first of several equal events is due at once, so that a person who was just refused finds it. Those that follow
within WINDOW_MS are counted, and due together when the window ends; while more come, another window follows. So a
client that is refused a thousand times a second makes one record a minute.

Bounded three times. One source (an address, and who logged in there) is told apart in at most MAX_OF_SOURCE refusals at
a time; what else it is refused is counted as its `others`. All refusals together leave room for RESERVED other events,
so that a flood of them hides no deed of an administrator. What does not fit into MAX_EVENTS is dropped and counted, and
the count is an event, too.

The counts of what was taken and of what is pending add up to what was offered; overflow events count what was dropped.
"""

from collections import Counter, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from headwater.broker.audit.audit_event import DENIALS, AuditEvent, AuditKind, AuditRecord, AuditVerdict
from headwater.model.moment import Moment

WINDOW_MS: Final = 60_000
MAX_EVENTS: Final = 10_000
"""That differ from each other."""
RESERVED: Final = 1_000
"""Of them, for what is no refusal."""
MAX_OF_SOURCE: Final = 100

_OVERFLOW: Final = AuditEvent(
    kind=AuditKind.OVERFLOW, verdict=AuditVerdict.FAILED, rule="more events than can be kept until they are written"
)


@dataclass(slots=True)
class _Counted:
    due_ms: int
    """In monotonic time: when the window ends."""
    first_ms: int = 0
    last_ms: int = 0
    count: int = 0
    is_fresh: bool = True
    """It is due, whatever the time."""


class PendingEvents:
    def __init__(self, node: int, *, max_events: int = MAX_EVENTS, reserved: int = RESERVED) -> None:
        self._node = node
        self._max_events = max_events
        self._max_denials = max_events - reserved
        self._counted: dict[AuditEvent, _Counted] = {}
        """In the order in which their windows end."""
        self._fresh: deque[AuditEvent] = deque()
        self._sources: Counter[Hashable] = Counter()
        """How many different refusals of each source are counted."""
        self._denials = 0
        self._dropped = _Counted(0)
        self.dropped_total = 0

    def __len__(self) -> int:
        return len(self._counted)

    @property
    def is_urgent(self) -> bool:
        """Whether something is due whatever the time."""
        return bool(self._fresh)

    def offer(self, event: AuditEvent, now: Moment, count: int = 1) -> None:
        counted = self._counted.get(event)
        if counted is None:
            event = self._kept(event)
            counted = self._counted.get(event) or self._added(event, now)
        if counted is None:
            counted = self._dropped
            self.dropped_total += count
        _count(counted, now.wall_ms, count)

    def take(self, now: Moment, most: int, *, is_last: bool = False) -> list[AuditRecord]:
        """What is due, at most so many. With `is_last` everything is."""
        return [*self._take(now, most, is_last)] if self._counted or self._dropped.count else []

    def next_due_ms(self) -> int | None:
        """When a window ends, in monotonic time; None without one."""
        windows = [next((each.due_ms for each in self._counted.values()), None)]
        windows += [self._dropped.due_ms] if self._dropped.count else []
        return min((each for each in windows if each is not None), default=None)

    # Inside

    def _take(self, now: Moment, most: int, is_last: bool) -> Iterator[AuditRecord]:
        if self._dropped.count and most > 0 and (is_last or self._dropped.due_ms <= now.monotonic_ms):
            yield self._record(_OVERFLOW, self._dropped)
            self._dropped.due_ms = now.monotonic_ms + WINDOW_MS
            most -= 1
        while self._fresh and most > 0:
            event = self._fresh.popleft()
            counted = self._counted[event]
            counted.is_fresh = False
            yield self._record(event, counted)
            most -= 1
        while self._counted and most > 0:
            event, counted = next(iter(self._counted.items()))
            if counted.is_fresh or (counted.due_ms > now.monotonic_ms and not is_last):
                return
            del self._counted[event]
            if counted.count == 0:
                self._forget(event)
                continue
            yield self._record(event, counted)
            most -= 1
            if is_last:
                self._forget(event)
            else:
                counted.due_ms = now.monotonic_ms + WINDOW_MS
                self._counted[event] = counted

    def _kept(self, event: AuditEvent) -> AuditEvent:
        """The event as it is counted: as one of its source's others, if the source has too many."""
        if event.verdict in DENIALS and self._sources[_source(event)] >= MAX_OF_SOURCE:
            return _others(event)
        return event

    def _added(self, event: AuditEvent, now: Moment) -> _Counted | None:
        """None if there is no room."""
        is_denial = event.verdict in DENIALS
        if len(self._counted) >= self._max_events or (is_denial and self._denials >= self._max_denials):
            return None
        if is_denial:
            self._denials += 1
            if not event.is_others:
                self._sources[_source(event)] += 1
        counted = self._counted[event] = _Counted(now.monotonic_ms + WINDOW_MS)
        self._fresh.append(event)
        return counted

    def _forget(self, event: AuditEvent) -> None:
        """It is not counted any more."""
        if event.verdict not in DENIALS:
            return
        self._denials -= 1
        if not event.is_others:
            source = _source(event)
            self._sources[source] -= 1
            if not self._sources[source]:
                del self._sources[source]

    def _record(self, event: AuditEvent, counted: _Counted) -> AuditRecord:
        record = AuditRecord(
            event=event, time_ms=counted.first_ms, until_ms=counted.last_ms, node=self._node, count=counted.count
        )
        counted.count = 0
        return record


def _count(counted: _Counted, wall_ms: int, count: int) -> None:
    if not counted.count:
        counted.first_ms = wall_ms
    counted.last_ms = wall_ms
    counted.count += count


def _source(event: AuditEvent) -> Hashable:
    """Names that logins fail with are invented at will; the principal of a request is not."""
    is_login = event.kind is AuditKind.AUTHENTICATION
    return event.kind, event.verdict, event.address, "" if is_login else event.principal


def _others(event: AuditEvent) -> AuditEvent:
    """What stands for the events of its source that are not told apart."""
    is_login = event.kind is AuditKind.AUTHENTICATION
    return replace(
        event, operation="", listener="", principal="" if is_login else event.principal, mechanism="", api="",
        resource_type="", name="", pattern="", rule="", client_id="", changes=(), is_others=True,
    )  # fmt: skip
