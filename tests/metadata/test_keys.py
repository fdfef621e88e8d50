import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from headwater.metadata import keys
from headwater.model.cluster import (
    ControllerRecord,
    Node,
    NodeStore,
    Reassignment,
    Role,
    StoreRecord,
    StoreState,
    TopicRecord,
)
from headwater.model.ids import SegmentId, StoreId
from headwater.model.segments import Head, OpenSegment, SealedSegment

A, B = StoreId("a" * 32), StoreId("b" * 32)
SEGMENT = SegmentId("1" * 32)

VALUES: list[tuple[keys.Value, Callable[[bytes], Any]]] = [
    (keys.ClusterRecord("c"), keys.decode_cluster),
    (TopicRecord(uuid.UUID(int=7), "t", 3, 2, {"retention.ms": "1"}), keys.decode_topic),
    (Head(1, 2, 3, OpenSegment(SEGMENT, 3, 2, 4, (A, B))), keys.decode_head),
    (Head(-1, 0, 0, None), keys.decode_head),
    (
        SealedSegment(
            id=SEGMENT,
            base=0,
            end=9,
            epoch=1,
            epoch_start=0,
            replicas=(A,),
            size_bytes=10,
            max_timestamp=11,
            crc32c=None,
            compacted=True,
            earlier_epochs=((0, 0),),
            adding=(B,),
        ),
        keys.decode_sealed,
    ),
    (
        Node(
            node_id=1,
            epoch=5,
            host="h",
            port=1,
            peer_host="p",
            peer_port=2,
            rack="r",
            roles=(Role.BROKER,),
            stores=(NodeStore(A, 1, 2, True),),
            is_leaving=True,
        ),
        keys.decode_node,
    ),
    (StoreRecord(A, 1, StoreState.DRAINING), keys.decode_store),
    (ControllerRecord(4, 1), keys.decode_controller),
    (Reassignment((3, 1, 2), True), keys.decode_reassignment),
]


@pytest.mark.parametrize(("value", "decode"), VALUES, ids=lambda case: getattr(case, "__name__", ""))
def test_a_value_is_read_as_it_was_written(value: keys.Value, decode: Callable[[bytes], Any]) -> None:
    assert decode(keys.encode(value)) == value


@pytest.mark.parametrize(("value", "decode"), VALUES, ids=lambda case: getattr(case, "__name__", ""))
def test_a_field_of_a_later_version_is_ignored(value: keys.Value, decode: Callable[[bytes], Any]) -> None:
    assert decode(json.dumps(with_unknown_fields(json.loads(keys.encode(value)))).encode()) == value


def test_a_role_of_a_later_version_is_ignored() -> None:
    written = json.loads(keys.encode(Node(node_id=1, epoch=5, host="h", port=1, peer_host="p", peer_port=2)))
    written["roles"].append("oracle")
    assert keys.decode_node(json.dumps(written).encode()).roles == (Role.BROKER, Role.STORE, Role.CONTROLLER)


def with_unknown_fields(value: Any) -> Any:
    """In every object except a topic's own settings, which are named by people."""
    if isinstance(value, list):
        return [with_unknown_fields(item) for item in value]
    if isinstance(value, dict):
        plain = {name: item if name == "config" else with_unknown_fields(item) for name, item in value.items()}
        return {**plain, "invented_later": {"x": [1]}}
    return value
