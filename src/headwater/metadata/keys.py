"""What lies under which key, and in which shape (docs/replication.md, 2). Values are JSON objects.

    cluster                           ClusterRecord
    secret                            what nodes prove to each other that they know
    ids/<kind>                        next free number of a counter (producer ids, node epochs)
    ctl/epoch                         ControllerRecord: the last one elected; its version fences the ones before
    ctl/leader                        ControllerRecord: the present one, as long as its session lives
    nodes/<node_id>-<node_epoch>      Node, as long as its session lives
    stores/<store_id>                 StoreRecord
    topics/<topic_id>                 TopicRecord
    names/<topic name>                the topic id
    p/<topic_id>.<index>              Head: who leads a partition, and its open segment
    s/<topic_id>.<index>/<seg>        SealedSegment
    staged/<topic_id>.<index>/<seg>   SealedSegment that compaction is making: garbage collection spares it
    reassign/<topic_id>.<index>       Reassignment
    config/<kind>/<name>              overrides for a broker or a group
    users/<name>                      a user's credentials (broker/access/user_record); one who is gone has none
    acl/<type>.<pattern>.<name>/<id>  an access control binding (security/acl)
    quota/<entity>/<key>              one limit of clients (security/quota_entities)

Only the leader of the current epoch changes Head.open and Head.start; only the controller changes
Head.leader and Head.epoch; both by compare-and-set on the head's version. Read a head before its list of
sealed segments, never after; and what is staged before what is sealed.

A field that this version does not know is ignored, so that nodes of two versions can share a cluster.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

from headwater.model.cluster import (
    ControllerRecord,
    Node,
    NodeListener,
    NodeStore,
    Reassignment,
    Role,
    StoreRecord,
    StoreState,
)
from headwater.model.cluster import TopicRecord as TopicRecord
from headwater.model.ids import NodeId, PartitionId, SegmentId, StoreId, TopicId
from headwater.model.segments import Head as Head
from headwater.model.segments import OpenSegment as OpenSegment
from headwater.model.segments import SealedSegment as SealedSegment

CLUSTER = "cluster"
USERS = "users/"
ACLS = "acl/"
QUOTAS = "quota/"
SECRET = "secret"
INVENTED = "invented"
CONTROLLERS = "ctl/"
CONTROLLER_EPOCH = "ctl/epoch"
CONTROLLER_LEADER = "ctl/leader"
NODES = "nodes/"
STORES = "stores/"
STAGED = "staged/"
REASSIGNMENTS = "reassign/"
TOPICS = "topics/"
NAMES = "names/"
HEADS = "p/"
SEALED = "s/"
FORMAT = 1


def topic_key(topic_id: TopicId) -> str:
    return f"{TOPICS}{topic_id.hex}"


def name_key(name: str) -> str:
    return f"{NAMES}{name}"


def head_key(partition: PartitionId) -> str:
    return f"{HEADS}{partition}"


def sealed_prefix(partition: PartitionId) -> str:
    return f"{SEALED}{partition}/"


def sealed_key(partition: PartitionId, segment: SegmentId) -> str:
    return f"{sealed_prefix(partition)}{segment}"


def staged_prefix(partition: PartitionId) -> str:
    return f"{STAGED}{partition}/"


def staged_key(partition: PartitionId, segment: SegmentId) -> str:
    return f"{staged_prefix(partition)}{segment}"


def reassignment_key(partition: PartitionId) -> str:
    return f"{REASSIGNMENTS}{partition}"


def node_key(node_id: NodeId, epoch: int) -> str:
    return f"{NODES}{node_id}-{epoch}"


def store_key(store_id: StoreId) -> str:
    return f"{STORES}{store_id}"


def counter_key(kind: str) -> str:
    return f"ids/{kind}"


def user_key(name: str) -> str:
    return USERS + _quoted(name)


def acl_key(resource_type: str, pattern_type: str, name: str, binding_id: str) -> str:
    return f"{ACLS}{resource_type}.{pattern_type}.{_quoted(name)}/{binding_id}"


def quota_key(entity: str, key: str) -> str:
    return f"{QUOTAS}{entity}/{key}"


def config_key(kind: str, name: str) -> str:
    return f"config/{kind}/{name}"


def _quoted(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    cluster_id: str
    format: int = FORMAT


Value: TypeAlias = (
    ClusterRecord
    | TopicRecord
    | Head
    | SealedSegment
    | Node
    | NodeListener
    | NodeStore
    | StoreRecord
    | ControllerRecord
    | Reassignment
    | OpenSegment
)
_T = TypeVar("_T")


def encode(value: Value) -> bytes:
    return json.dumps(_plain(value), separators=(",", ":"), default=_plain).encode()


def decode_cluster(data: bytes) -> ClusterRecord:
    return _made(ClusterRecord, json.loads(data))


def decode_topic(data: bytes) -> TopicRecord:
    plain = json.loads(data)
    return _made(TopicRecord, {**plain, "topic_id": uuid.UUID(hex=plain["topic_id"])})


def decode_head(data: bytes) -> Head:
    plain = json.loads(data)
    open_plain = plain["open"]
    return _made(Head, {**plain, "open": _made(OpenSegment, open_plain) if open_plain is not None else None})


def decode_sealed(data: bytes) -> SealedSegment:
    return _made(SealedSegment, json.loads(data))


def decode_node(data: bytes) -> Node:
    plain = json.loads(data)
    known = {role.value for role in Role}
    roles = tuple(Role(role) for role in plain["roles"] if role in known)
    stores = tuple(_made(NodeStore, store) for store in plain["stores"])
    listeners = tuple(_made(NodeListener, listener) for listener in plain.get("listeners", ()))
    return _made(Node, {**plain, "roles": roles, "stores": stores, "listeners": listeners})


def decode_store(data: bytes) -> StoreRecord:
    plain = json.loads(data)
    return _made(StoreRecord, {**plain, "state": StoreState(plain["state"])})


def decode_controller(data: bytes) -> ControllerRecord:
    return _made(ControllerRecord, json.loads(data))


def decode_reassignment(data: bytes) -> Reassignment:
    return _made(Reassignment, json.loads(data))


def _made(kind: type[_T], plain: Mapping[str, Any]) -> _T:
    """Of the fields that this version knows."""
    untyped: Any = kind
    known = untyped.__slots__
    return kind(**{name: _tuple(value) for name, value in plain.items() if name in known})


def _tuple(value: Any) -> Any:
    return tuple(map(_tuple, value)) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """One level of what JSON does not know by itself."""
    if isinstance(value, uuid.UUID):
        return value.hex
    return {name: getattr(value, name) for name in value.__slots__}
