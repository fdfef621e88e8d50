"""Who is what in a cluster at this moment, as its metadata says: for tests that want to hit a leader, not a node.

Read from etcd past the nodes, and from one member alone: an answer that is a little old is good enough to aim with, and
it comes even while nodes and members are away.
"""

import base64
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headwater.metadata import keys
from headwater.model.ids import NodeId, PartitionId, StoreId
from headwater.model.segments import Head
from headwater.testing.processes.etcd_process import EtcdProcess

ASK_TIMEOUT_S: Final = 1.0
OFFSETS_TOPIC: Final = "__consumer_offsets"
_ROLE: Final = re.compile(r"(?P<role>leader|replica) of (?P<topic>.+)-(?P<index>\d+)|coordinator of (?P<group>.+)")


@dataclass(frozen=True, slots=True)
class ClusterState:
    heads: Mapping[tuple[str, int], Head] = field(default_factory=dict)
    """By topic and partition."""
    owners: Mapping[StoreId, NodeId] = field(default_factory=dict)
    alive: frozenset[NodeId] = frozenset()
    controller: NodeId | None = None

    def node(self, role: str) -> NodeId | None:
        """Who is "controller", "leader of TOPIC-0", "replica of TOPIC-0" (the first that does not lead) or
        "coordinator of GROUP"; None if there is none."""
        if role == "controller":
            return self.controller
        match = _ROLE.fullmatch(role)
        if match is None:
            raise ValueError(f"{role!r} is no role: see ClusterState.node")
        if match["group"] is not None:
            count = sum(1 for topic, _ in self.heads if topic == OFFSETS_TOPIC)
            partition = (OFFSETS_TOPIC, zlib.crc32(match["group"].encode()) % count if count else 0)
        else:
            partition = (match["topic"], int(match["index"]))
        head = self.heads.get(partition)
        if head is None:
            return None
        if match["role"] == "replica":
            return next((node for node in self.replicas(*partition) if node != head.leader), None)
        return head.leader

    def replicas(self, topic: str, index: int) -> list[NodeId]:
        """The nodes that have the open segment."""
        head = self.heads.get((topic, index))
        if head is None or head.open is None:
            return []
        return [self.owners[store] for store in head.open.replicas if store in self.owners]


def read_state(etcd: EtcdProcess, prefix: str) -> ClusterState:
    """What the first member says that answers; nothing, if none does."""
    for member in etcd.members:
        try:
            return _read(etcd, prefix, member)
        except OSError:
            continue
    return ClusterState()


def _read(etcd: EtcdProcess, prefix: str, member: int) -> ClusterState:
    found = {name: _list(etcd, prefix, member, name) for name in (keys.HEADS, keys.TOPICS, keys.STORES, keys.NODES)}
    names = {topic.topic_id: topic.name for topic in map(keys.decode_topic, found[keys.TOPICS].values())}
    heads: dict[tuple[str, int], Head] = {}
    for key, value in found[keys.HEADS].items():
        partition = PartitionId.parse(key.removeprefix(keys.HEADS))
        if partition.topic_id in names:
            heads[names[partition.topic_id], partition.index] = keys.decode_head(value)
    stores = map(keys.decode_store, found[keys.STORES].values())
    controllers = _list(etcd, prefix, member, keys.CONTROLLERS)
    leader = controllers.get(keys.CONTROLLER_LEADER)
    return ClusterState(
        heads,
        {store.store_id: store.node_id for store in stores},
        frozenset(keys.decode_node(value).node_id for value in found[keys.NODES].values()),
        keys.decode_controller(leader).node if leader is not None else None,
    )


def _list(etcd: EtcdProcess, prefix: str, member: int, name: str) -> dict[str, bytes]:
    root = f"{prefix}/".encode()
    first = root + name.encode()
    question = {"key": _text(first), "range_end": _text(first[:-1] + bytes([first[-1] + 1])), "serializable": True}
    answer = etcd.call("/v3/kv/range", question, member, ASK_TIMEOUT_S)
    rows = answer.get("kvs", [])
    return {
        base64.b64decode(row["key"]).removeprefix(root).decode(): base64.b64decode(row.get("value", "")) for row in rows
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
