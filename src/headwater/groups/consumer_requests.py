"""ConsumerGroupHeartbeat without its wire versions."""

from dataclasses import dataclass

from headwater.groups.assignment import Assignment
from headwater.groups.assignors import ASSIGNORS
from headwater.groups.settings import MAX_NAME_CHARS, GroupSettings
from headwater.groups.visible_topics import TopicRights
from headwater.model.errors import ErrorCode, RequestError

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
UNCHANGED_MS = -1
"""The rebalance timeout has not changed."""
MAX_TOPICS = 10_000
"""Names that one member may subscribe to."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """None, and a timeout of -1, mean: unchanged."""

    member_id: str
    epoch: int
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_MS
    topic_names: tuple[str, ...] | None = None
    """Sorted, each once."""
    topic_regex: str | None = None
    """Empty: no pattern any more."""
    server_assignor: str | None = None
    owned: Assignment | None = None
    rights: TopicRights | None = None
    """For its pattern, where clients need not see every topic."""

    @property
    def is_full(self) -> bool:
        """The member describes itself completely, and expects its whole assignment in the answer."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != UNCHANGED_MS and has_subscription and self.owned is not None

    @property
    def says_nothing(self) -> bool:
        """The member changes nothing: the heartbeat is a sign of life only."""
        return (
            self.epoch != JOIN_EPOCH
            and self.rebalance_timeout_ms == UNCHANGED_MS
            and self.topic_names is None
            and self.topic_regex is None
            and self.server_assignor is None
            and self.rack_id is None
        )

    def check(self, settings: GroupSettings) -> None:
        """Raise RequestError for what no group would accept."""
        if not self.member_id:
            raise _invalid("MemberId can't be empty.")
        names = (self.member_id, self.client_id, self.instance_id or "", self.rack_id or "", self.server_assignor or "")
        if any(len(name) > MAX_NAME_CHARS for name in names):
            raise _invalid(f"A name has more than {MAX_NAME_CHARS} characters.")
        if any(name is not None and not name.strip() for name in (self.instance_id, self.rack_id)):
            raise _invalid("InstanceId and RackId can't be empty.")
        if self.epoch < LEAVE_STATIC_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        if self.epoch == LEAVE_STATIC_EPOCH and self.instance_id is None:
            raise _invalid("InstanceId can't be null.")
        if self.rebalance_timeout_ms < UNCHANGED_MS:
            raise _invalid("RebalanceTimeoutMs can't be negative.")
        if self.epoch == JOIN_EPOCH:
            self._check_join()
        if self.server_assignor is not None and self.server_assignor not in ASSIGNORS:
            raise RequestError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {self.server_assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
            )
        topic_names = self.topic_names or ()
        if len(topic_names) > MAX_TOPICS or sum(map(len, topic_names)) > settings.max_member_metadata_bytes:
            raise _invalid(f"A member subscribes to at most {MAX_TOPICS} names.")

    def _check_join(self) -> None:
        if self.rebalance_timeout_ms == UNCHANGED_MS:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if self.owned is None or self.owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if self.topic_names is None and self.topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message)
