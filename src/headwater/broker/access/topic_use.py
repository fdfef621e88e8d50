"""Which clients write to and read from which topics, counted: for an audit that tells it (`audit_data`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from headwater.broker.access.client_access import GuardedAccess
from headwater.security.access_codes import Operation, ResourceType
from headwater.security.acl_words import operation_word

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


class CountedAccess(GuardedAccess):
    """Counts the requests by which records go in and out, too: one more look into a dictionary for each topic."""

    __slots__ = ("_count_use", "_counts")

    def __init__(self, count_use: CountUse, *guarded: Any, **by: Any) -> None:
        """`guarded` and `by` are what GuardedAccess is made from."""
        super().__init__(*guarded, **by)
        self._count_use = count_use
        self._counts: dict[tuple[str, str], UseCount] = {}

    def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        is_allowed = super().allows(operation, resource_type, name)
        if is_allowed and resource_type is ResourceType.TOPIC and self.api in DATA_APIS:
            count = self._counts.get((self.api, name))
            if count is None or not count.is_live:
                count = self._count_of(operation, name)
            count.requests += 1
        return is_allowed

    def _count_of(self, operation: Operation, topic: str) -> UseCount:
        if len(self._counts) >= MAX_TOPICS_OF_CONNECTION:
            self._counts.clear()
        use = TopicUse(
            principal=str(self._principal), host=self._host, listener=self._listener, api=self.api,
            operation=operation_word(operation), topic=topic,
        )  # fmt: skip
        count = self._counts[self.api, topic] = self._count_use(use)
        return count
