"""Which clients write to and read from which topics, counted: for an audit that tells it (`audit_data`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

DATA_APIS: Final = frozenset({"Produce", "Fetch", "ShareFetch"})
"""Those that records go in and out by."""
MAX_TOPICS_OF_CONNECTION: Final = 1_000
"""That a connection remembers its counts of. Beyond them it looks them up anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUse:
    principal: str
    host: str
    listener: str
    api: str
    operation: str
    topic: str


@dataclass(slots=True)
class UseCount:
    requests: int = 0
    is_live: bool = True
    """Whether it is still told: one that was not used for a minute is not."""


CountUse: TypeAlias = Callable[[TopicUse], UseCount]
"""The count of a use, which goes up with each request."""
