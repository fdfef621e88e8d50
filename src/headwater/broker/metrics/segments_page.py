"""The segments of a topic and their nodes, as JSON beside the metrics: the Kafka protocol has no place for it.

    GET /segments?topic=NAME

    {"segments": [{"partition": 0, "start_offset": 0, "end_offset": 500, "size_bytes": 1024, "state": "sealed",
                   "nodes": [1, 2], "first_timestamp": null, "last_timestamp": 1731700000000}], "left_out": 0}

In the order of partitions and offsets. Of an open segment that another node leads, the end and the size are null. When
a segment began is not kept anywhere, so `first_timestamp` is null; `last_timestamp` is the greatest in it. A store
whose node is not known is left out. The page has at most MAX_SHOWN segments, the first ones; `left_out` counts the
others of the partitions that were looked at, and `partitions_left_out` the partitions behind MAX_LOOKED_UP.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from headwater.broker.log.partition import Partition
from headwater.broker.topics.topic import Topic
from headwater.metadata import keys
from headwater.metadata.store import KV
from headwater.model.ids import NodeId, Offset, StoreId
from headwater.model.segments import Head, OpenSegment, SealedSegment

MAX_SHOWN = 5_000
MAX_LOOKED_UP = 256
"""Partitions that others lead, each of which is a question to the metadata."""

NodeOf: TypeAlias = Callable[[StoreId], NodeId | None]


class KeyLister(Protocol):
    async def list(self, prefix: str) -> list[KV]: ...


async def segments_page(topic: Topic, metadata: KeyLister, node_of: NodeOf) -> bytes:
    """Raises what the metadata raises when it cannot be asked."""
    shown: list[dict[str, Any]] = []
    left_out = looked_up = partitions_left_out = 0
    for index in range(topic.partition_count):
        led = topic.led.get(index)
        if led is not None:
            segments = list(_led(index, led, node_of))
        elif looked_up < MAX_LOOKED_UP:
            looked_up += 1
            head = topic.heads.get(index)
            found = await metadata.list(keys.sealed_prefix(topic.partition_id(index)))
            segments = list(_elsewhere(index, head, [keys.decode_sealed(each.value) for each in found], node_of))
        else:
            partitions_left_out += 1
            continue
        room = MAX_SHOWN - len(shown)
        shown += segments[:room]
        left_out += max(len(segments) - room, 0)
    page = {"segments": shown, "left_out": left_out, "partitions_left_out": partitions_left_out}
    return json.dumps(page).encode()


def _led(index: int, partition: Partition, node_of: NodeOf) -> Iterator[dict[str, Any]]:
    for sealed in partition.register.chain.sealed:
        yield _sealed(index, sealed, node_of)
    newest = partition.open_max_timestamp if partition.open_bytes else -1
    open_segment = partition.register.chain.open
    end, size_bytes = partition.high_watermark, partition.open_bytes
    yield _description(
        index=index,
        start=open_segment.base,
        end=end,
        size_bytes=size_bytes,
        state="open",
        stores=open_segment.replicas,
        newest=newest,
        node_of=node_of,
    )


def _elsewhere(
    index: int, head: Head | None, sealed: Sequence[SealedSegment], node_of: NodeOf
) -> Iterator[dict[str, Any]]:
    """The head was read before its sealed segments, and the open one may have been sealed meanwhile."""
    for segment in sorted(sealed, key=lambda each: each.base):
        yield _sealed(index, segment, node_of)
    last: OpenSegment | None = head.open if head is not None else None
    if last is not None and all(last.id != segment.id for segment in sealed):
        yield _description(
            index=index,
            start=last.base,
            end=None,
            size_bytes=None,
            state="open",
            stores=last.replicas,
            newest=-1,
            node_of=node_of,
        )


def _sealed(index: int, segment: SealedSegment, node_of: NodeOf) -> dict[str, Any]:
    return _description(
        index=index,
        start=segment.base,
        end=segment.end,
        size_bytes=segment.size_bytes,
        state="sealed",
        stores=segment.replicas,
        newest=segment.max_timestamp,
        node_of=node_of,
    )


def _description(
    index: int,
    start: Offset,
    end: Offset | None,
    size_bytes: int | None,
    state: str,
    stores: Sequence[StoreId],
    newest: int,
    node_of: NodeOf,
) -> dict[str, Any]:
    nodes = sorted({node for store in stores if (node := node_of(store)) is not None})
    return {
        "partition": index,
        "start_offset": start,
        "end_offset": end,
        "size_bytes": size_bytes,
        "state": state,
        "nodes": nodes,
        "first_timestamp": None,
        "last_timestamp": newest if newest >= 0 else None,
    }
