"""What the metadata says of the cluster: which nodes are alive, which stores there are, which node is the controller,
which topics exist, and which partitions are to move.

A node is alive as long as its record is there: the record is a session's. A store outlives its node's process, so its
record is persistent, and says what administrators decided about it.
"""

import enum
from dataclasses import dataclass, field
from typing import Final

from headwater.model.ids import NodeId, StoreId, TopicId

NO_LEADER: Final = NodeId(-1)
NO_CONTROLLER: Final = NodeId(-1)
AUDIT_TOPIC: Final = "__headwater_audit"
"""Who did what, written by nodes and read by those whom a binding allows it by this name."""
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", AUDIT_TOPIC})
"""The cluster's own: nodes alone write them. The leader of a partition of the first three coordinates groups,
transactions or queues."""


class Role(enum.StrEnum):
    BROKER = "broker"
    """Leads partitions and serves clients."""
    STORE = "store"
    """Keeps replicas."""
    CONTROLLER = "controller"
    """May be elected controller."""


class StoreState(enum.StrEnum):
    ACTIVE = "active"
    DRAINING = "draining"
    """Gets nothing new, and gives up what it has as soon as others have it."""
    LOST = "lost"
    """An administrator decided that its data will not come back."""


@dataclass(frozen=True, slots=True)
class NodeStore:
    """One store as its living node reports it."""

    store_id: StoreId
    free_bytes: int
    total_bytes: int
    in_doubt: bool = False
    """It restarted with open replicas that may have lost acknowledged bytes."""


STATE_FORMAT: Final = 1
"""What this version reads in internal topics. 1: the state of share groups under keys of our own (decision 0019). A
format is written when every node of the cluster reads it."""


PLAINTEXT_LISTENER: Final = "PLAINTEXT"
"""The name of the listener of a node whose configuration names none, and of nodes of versions that had only one."""


@dataclass(frozen=True, slots=True)
class NodeListener:
    """Where clients reach a node that came in by the listener of this name on another."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Node:
    node_id: NodeId
    epoch: int
    """Grows with every registration; part of the record's key, so that no key is used twice."""
    host: str
    port: int
    peer_host: str
    peer_port: int
    """Where the other nodes reach its store."""
    rack: str | None = None
    roles: tuple[Role, ...] = (Role.BROKER, Role.STORE, Role.CONTROLLER)
    stores: tuple[NodeStore, ...] = ()
    is_leaving: bool = False
    """The node is about to stop: other nodes shall lead its partitions."""
    state_format: int = 0
    """The newest keys and values of internal topics that it reads: see STATE_FORMAT."""
    listeners: tuple[NodeListener, ...] = ()
    """Host and port above are those of the first. Empty in the record of an earlier version."""
    secret_ids: tuple[str, ...] = ()
    """Which secrets of the cluster it takes from other nodes; it proves the first. Empty in the record of an earlier
    version, which has the only one."""

    @property
    def store_ids(self) -> tuple[StoreId, ...]:
        return tuple(store.store_id for store in self.stores)

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    def address_on(self, listener: str) -> tuple[str, int] | None:
        """Where clients of this listener reach the node; None if it has no such listener."""
        if not self.listeners:
            return self.address if listener == PLAINTEXT_LISTENER else None
        return next(((each.host, each.port) for each in self.listeners if each.name == listener), None)


@dataclass(frozen=True, slots=True)
class StoreRecord:
    store_id: StoreId
    node_id: NodeId
    state: StoreState = StoreState.ACTIVE
    host: str = ""
    port: int = -1
    rack: str | None = None
    """Host, port and rack of its node at its last registration, kept for when the node is gone."""
    away_since_ms: int | None = None
    """When the controller noticed that its node was gone; None before that."""


@dataclass(frozen=True, slots=True)
class ControllerRecord:
    epoch: int
    """The number of elections so far. The version of the key that keeps it fences earlier controllers."""
    node: NodeId


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The nodes that an administrator wants the replicas of a partition on. It stays after it was carried out, and new
    segments prefer these nodes, until another one or a cancellation replaces it."""

    nodes: tuple[NodeId, ...]
    """The first is the preferred leader. Empty: the reassignment was cancelled; a key that others compare is never
    deleted and made again."""
    is_complete: bool = False


@dataclass(frozen=True, slots=True)
class TopicRecord:
    topic_id: TopicId
    name: str
    partitions: int
    replication_factor: int
    config: dict[str, str] = field(default_factory=dict)
