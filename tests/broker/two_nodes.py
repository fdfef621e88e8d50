"""Two nodes of a cluster on the test's own event loop, with one metadata file."""

import uuid
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from headwater.broker.cluster import member as cluster_member
from headwater.broker.server import Broker
from headwater.model.ids import PartitionId
from headwater.testing.fakes.files import MemoryFiles
from tests.support.eventually import until
from tests.support.local_broker import start


@asynccontextmanager
async def two_nodes(
    directory: Path, *, own: Mapping[int, Mapping[str, Any]] | None = None, **config: Any
) -> AsyncIterator[tuple[Broker, Broker]]:
    """`own` has what only one of them is configured with."""
    nodes: list[Broker] = []  # filled one by one: what was started is stopped
    try:
        for node_id in (1, 2):
            node = await start_node(directory, node_id, **{**config, **(own or {}).get(node_id, {})})
            nodes.append(node)
        one, two = nodes
        await until(lambda: len(one.cluster_nodes.brokers()) == len(two.cluster_nodes.brokers()) == 2)
        yield one, two
    finally:
        for node in nodes:
            with patch.object(cluster_member, "HANDOVER_S", 0.1):  # there is nobody to hand over to
                await node.stop()


async def start_node(directory: Path, node_id: int, **config: Any) -> Broker:
    few = {
        "offsets_topic_partitions": 4,
        "transaction_state_topic_partitions": 4,
        "share_state_topic_partitions": 4,
    }
    node: Broker = await start(
        directory / str(node_id), MemoryFiles(), node_id=node_id, peer_listen="127.0.0.1:0",
        metadata=f"sqlite:{directory / 'metadata.db'}", **{**few, **config},
    )  # fmt: skip
    return node


async def new_partition(leader: Broker, other: Broker, name: str = "t") -> PartitionId:
    """Of a topic with one partition, led by that node; both know of it."""
    topic = await leader.catalog.changes.create(name, 1, {}, leaders=[leader.config.node_id])
    assert topic is not None
    await until(lambda: other.catalog.find(name) is not None and 0 in topic.led)
    return topic.partition_id(0)


async def name_kept_by(node: Broker, topic: str) -> str:
    """A name that belongs to a partition of an internal topic which the node leads, as soon as it leads one."""
    await until(lambda: (known := node.catalog.find(topic)) is not None and known.led)
    found = node.catalog.topic(topic)
    while True:
        name = f"name-{uuid.uuid4().hex[:8]}"
        if zlib.crc32(name.encode()) % found.partition_count in found.led:
            return name
