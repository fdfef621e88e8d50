"""Who the controller is and who may become it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headwater.model.errors import ErrorCode
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.two_nodes import two_nodes
from tests.support.eventually import until
from tests.support.local_broker import Client, running
from tests.support.messages import nested

DESCRIBE_QUORUM = 55
TOPIC = "__cluster_metadata"


async def quorum(client: Client, version: int = 2, topic: str = TOPIC, index: int = 0) -> tuple[Any, Any]:
    """The answer and its partition."""
    asked = [nested(topic_name=topic, partitions=[nested(partition_index=index)])]
    answer = await client.ask(DESCRIBE_QUORUM, version, topics=asked)
    assert answer.error_code == 0
    return answer, answer.topics[0].partitions[0]


def ids(replicas: Any) -> list[int]:
    return [replica.replica_id for replica in replicas]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_node_that_is_alone_is_the_controller(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with running(tmp_path, MemoryFiles(), node_id=7) as (broker, client):
            answer, partition = await quorum(client, version)
            assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, 7)
            assert (ids(partition.current_voters), partition.observers) == ([7], [])
            if version == 2:
                (node,) = answer.nodes
                (listener,) = node.listeners
                assert (node.node_id, listener.host, listener.port) == (7, *broker.advertised)

    asyncio.run(main())


@pytest.mark.parametrize(("topic", "index"), [(TOPIC, 1), (TOPIC, -1), ("orders", 0), ("", 0)])
def test_nothing_else_has_a_quorum(tmp_path: Path, topic: str, index: int) -> None:
    async def main() -> None:
        async with running(tmp_path, MemoryFiles()) as (_, client):
            answer, partition = await quorum(client, topic=topic, index=index)
            assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (partition.current_voters, answer.nodes) == ([], [])

    asyncio.run(main())


def test_every_node_names_the_controller_and_its_candidates(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_nodes(tmp_path) as nodes:
            await until(lambda: all(node.cluster_nodes.controller_id in (1, 2) for node in nodes))
            for node in nodes:
                client = await Client.connect(node)
                _, partition = await quorum(client)
                assert partition.leader_id == nodes[0].cluster_nodes.controller_id
                assert partition.leader_epoch >= 1, "there was an election"
                assert (ids(partition.current_voters), ids(partition.observers)) == ([1, 2], [])
                client.close()

    asyncio.run(main())


def test_a_node_that_cannot_be_elected_observes(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_nodes(tmp_path, own={2: {"roles": "broker,store"}}) as nodes:
            await until(lambda: all(node.cluster_nodes.controller_id == 1 for node in nodes))
            client = await Client.connect(nodes[1])
            answer, partition = await quorum(client)
            assert (ids(partition.current_voters), ids(partition.observers)) == ([1], [2])
            assert [node.node_id for node in answer.nodes] == [1]
            client.close()

    asyncio.run(main())
