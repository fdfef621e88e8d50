"""What an operator may set about groups, with every default, and the limits on what clients can make us keep."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

MAX_STRING_BYTES = 32_767
"""Strings are stored with a 16-bit length; a group's name may have all of it, as in Kafka."""
MAX_NAME_CHARS = 255
"""Instance, client and protocol names: they are kept with each member and in each departure."""
MAX_PROTOCOLS = 64
"""Assignment strategies that one member may offer."""
MAX_DEPARTURES = 50
"""How many departures a group remembers."""
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a new member may wait for its first join: it sends no heartbeats before that is answered."""


class MigrationPolicy(enum.Enum):
    """Whether a group with members may go from one protocol to the other."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerTimes:
    """Session timeout and heartbeat interval of a consumer group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int


def _nothing_said(group_id: str) -> ConsumerTimes | None:
    return None


@dataclass(slots=True)
class GroupSettings:
    """One object for all groups of a coordinator. The operator may change values while it runs: they apply to later
    decisions, not to logged events."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    """How long an empty group waits for more members before its first generation."""
    max_members: int = 10_000
    """Members of one group; as many again may hold an id without having joined."""
    max_groups: int = 100_000
    """Groups of one shard."""
    max_member_metadata_bytes: int = 262_144
    """All protocols of one member together."""
    max_group_bytes: int = 4_194_304
    """The metadata of all members of one group, and the record of subscriptions and assignments."""
    max_shard_bytes: int = 134_217_728
    """The metadata and assignments of the members of all groups of one shard."""
    max_offset_metadata_bytes: int = 4_096
    max_pending_offsets: int = 100_000
    """Offsets in open transactions, of all groups of one shard."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    consumer_session_timeout_ms: int = 45_000
    """For members of consumer groups."""
    consumer_heartbeat_interval_ms: int = 5_000
    """The heartbeat interval that members of consumer groups are asked to keep."""
    consumer_max_members: int = 10_000
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    restricts_patterns: bool = False
    """Whether a pattern stands only for topics that its member may see: heartbeats say which these are."""
    own_times: Callable[[str], ConsumerTimes | None] = _nothing_said
    """The times of a group that has its own configuration; None: it has none."""

    def consumer_times(self, group_id: str) -> ConsumerTimes:
        said = self.own_times(group_id)
        if said is not None:
            return said
        return ConsumerTimes(self.consumer_session_timeout_ms, self.consumer_heartbeat_interval_ms)
