"""Nodes that are gone can be forgotten, others not."""

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from headwater.broker.cluster import member as cluster_member
from headwater.broker.cluster.node_removal import forget
from headwater.broker.server import Broker
from headwater.metadata import keys
from headwater.model.errors import ErrorCode, RequestError
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.two_nodes import new_partition, start_node, two_nodes
from tests.support.eventually import until
from tests.support.local_broker import Client, batch_of, running

UNREGISTER = 64


async def unregister(broker: Broker, node_id: int) -> tuple[int, str | None]:
    client = await Client.connect(broker)
    try:
        answer = await client.ask(UNREGISTER, 0, broker_id=node_id)
        return answer.error_code, answer.error_message
    finally:
        client.close()


async def stop(node: Broker) -> None:
    with patch.object(cluster_member, "HANDOVER_S", 0.1):
        await node.stop()


async def registered(broker: Broker) -> set[int]:
    return {keys.decode_store(kv.value).node_id for kv in await broker.metadata.list(keys.STORES)}


def test_a_node_that_is_alone_forgets_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, _):
            assert await unregister(broker, 1) == (ErrorCode.INVALID_REQUEST, "Broker 1 is running. Stop it first.")
            assert (await unregister(broker, 99))[0] == ErrorCode.BROKER_ID_NOT_REGISTERED
            assert (await unregister(broker, -1))[0] == ErrorCode.BROKER_ID_NOT_REGISTERED

    asyncio.run(main())


def test_a_node_is_forgotten_when_it_is_stopped_and_empty_and_may_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_nodes(tmp_path) as (one, two):
            assert (await unregister(one, 2))[0] == ErrorCode.INVALID_REQUEST
            await stop(two)
            await until(lambda: one.cluster_nodes.find(2) is None)
            assert await registered(one) == {1, 2}
            assert await unregister(one, 2) == (ErrorCode.NONE, None)
            assert await registered(one) == {1}
            await until(lambda: all(record.node_id == 1 for record in one.cluster_nodes.stores.values()))
            assert (await unregister(one, 2))[0] == ErrorCode.BROKER_ID_NOT_REGISTERED
            back = await start_node(tmp_path, 2)
            try:
                assert await registered(one) == {1, 2}
                await until(lambda: one.cluster_nodes.find(2) is not None)
            finally:
                await stop(back)

    asyncio.run(main())


def test_a_node_with_replicas_is_not_forgotten(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_nodes(tmp_path, default_replication_factor=1) as (one, two):
            await new_partition(two, one, "orders")
            client = await Client.connect(two)
            assert (await client.produce("orders", batch_of([b"a"]))).error_code == 0
            client.close()
            with patch.object(cluster_member.ClusterMember, "leave"):  # or it hands over what it has
                await stop(two)
            await until(lambda: one.cluster_nodes.find(2) is None)
            code, message = await unregister(one, 2)
            assert code == ErrorCode.INVALID_REQUEST
            assert message is not None
            assert "has replicas of 1 segments" in message
            assert await registered(one) == {1, 2}

    asyncio.run(main())


def test_a_node_that_returns_in_that_very_moment_keeps_its_record(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_nodes(tmp_path) as (one, two):
            await stop(two)
            await until(lambda: one.cluster_nodes.find(2) is None)
            listed, metadata = one.metadata.list, one.metadata
            returned: list[Any] = []

            async def nobody_then_back(prefix: str) -> object:
                if prefix != keys.NODES or returned:
                    return await listed(prefix)
                returned.append(await start_node(tmp_path, 2))
                return [kv for kv in await listed(prefix) if keys.decode_node(kv.value).node_id == 1]

            with patch.object(metadata, "list", nobody_then_back), pytest.raises(RequestError, match="running"):
                await forget(metadata, 2)
            assert await registered(one) == {1, 2}
            await stop(returned[0])

    asyncio.run(main())
