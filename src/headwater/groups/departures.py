"""Why members left a group: the first question when a group will not settle."""

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
    """Of the new protocol: its application did not poll within max.poll.interval.ms."""
    SYNC_TIMEOUT = "did not sync in time"
    NOT_BACK = "did not come back after its coordinator began"
    FENCED = "replaced by a new member with the same instance id"


@dataclass(frozen=True, slots=True)
class Departure:
    group_id: str
    at_ms: int
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    reason: DepartureReason
    explanation: str = ""
    """In the client's own words, when it gave any."""


class Departures:
    """The last MAX_DEPARTURES of them, oldest first. In memory only: a restart forgets."""

    def __init__(self) -> None:
        self._departures: deque[Departure] = deque(maxlen=MAX_DEPARTURES)

    def __iter__(self) -> Iterator[Departure]:
        return iter(self._departures)

    def __len__(self) -> int:
        return len(self._departures)

    def note(self, departure: Departure) -> None:
        self._departures.append(departure)

    def take_over(self, earlier: "Departures") -> None:
        """A group that changed its kind remembers who left it before."""
        self._departures.extendleft(reversed(earlier._departures))
