"""Why members left a group: the first question when a group keeps rebalancing."""

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.groups.settings import MAX_DEPARTURES

MAX_EXPLANATION_CHARS = 255


class DepartureReason(enum.Enum):
    LEFT = "left"
    SESSION_EXPIRED = "session expired"
    REBALANCE_TIMEOUT = "did not rejoin in time"
    REVOCATION_TIMEOUT = "did not give up its partitions in time"
    """Consumer groups only: the application did not poll within max.poll.interval.ms."""
    SYNC_TIMEOUT = "did not sync in time"
    NOT_BACK = "did not come back after its coordinator began"
    FENCED = "replaced by a new member with the same instance id"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDeparture:
    group_id: str
    at_ms: int
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    reason: DepartureReason
    explanation: str = ""
    """The client's own words, if it sent any."""


class Departures:
    """The last MAX_DEPARTURES departures, oldest first. In memory only: a restart forgets them."""

    def __init__(self) -> None:
        self._departures: deque[MemberDeparture] = deque(maxlen=MAX_DEPARTURES)

    def __iter__(self) -> Iterator[MemberDeparture]:
        return iter(self._departures)

    def __len__(self) -> int:
        return len(self._departures)

    def note(self, departure: MemberDeparture) -> None:
        self._departures.append(departure)

    def take_over(self, earlier: "Departures") -> None:
        """Prepend the departures of the group that this one replaces."""
        self._departures.extendleft(reversed(earlier._departures))
