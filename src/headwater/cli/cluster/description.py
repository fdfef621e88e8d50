"""The description of a cluster that `headwater cluster status` prints: by its brokers (`kafka_description`), by its
metadata (`metadata_description`), or by both."""

from dataclasses import dataclass, field, replace
from typing import Final

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDescription:
    node: int
    address: str
    rack: str | None
    is_controller: bool
    leads: int
    in_sync: int
    """How many partitions have their open segment there."""
    used_bytes: int | None = None
    free_bytes: int | None = None
    roles: tuple[str, ...] | None = None
    is_leaving: bool = False
    is_up: bool = True
    down_since_ms: int | None = None
    """None while it is up, or if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDescription:
    store: str
    node: int
    state: str
    is_alive: bool
    segments: int
    """How many sealed segments name it."""
    open: int
    """How many open segments name it."""
    bytes: int
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class PartitionProblem:
    """A partition that lacks a leader or replicas."""

    topic: str
    partition: int
    leader: int
    in_sync: tuple[int, ...]
    wanted: int
    """How many replicas it should have."""
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller: int
    partitions: int
    nodes: tuple[NodeDescription, ...]
    problems: tuple[PartitionProblem, ...] = ()
    stores: tuple[StoreDescription, ...] | None = None
    """This and `takeovers` are None if the metadata was not read."""
    takeovers: int | None = None
    """How many partitions are being taken over by a new leader."""
    cannot_tell: tuple[str, ...] = field(default=())
    """Addresses of nodes that did not answer."""

    @property
    def under_replicated(self) -> int:
        return sum(problem.leader != NO_LEADER for problem in self.problems)

    @property
    def leaderless(self) -> int:
        return len(self.problems) - self.under_replicated

    @property
    def nodes_up(self) -> int:
        return sum(node.is_up for node in self.nodes)

    @property
    def is_healthy(self) -> bool:
        """Every node is up, and every partition has a leader and all its replicas."""
        are_up = 0 < len(self.nodes) == self.nodes_up
        return are_up and self.controller >= 0 and not self.problems and not self.takeovers


def together(by_kafka: ClusterDescription, by_metadata: ClusterDescription) -> ClusterDescription:
    """The used space of each node by the brokers, everything else by the metadata."""
    used = {node.node: node for node in by_kafka.nodes}
    nodes = tuple(
        replace(node, used_bytes=used[node.node].used_bytes) if node.is_up and node.node in used else node
        for node in by_metadata.nodes
    )
    return replace(by_metadata, nodes=nodes, cannot_tell=by_kafka.cannot_tell)
