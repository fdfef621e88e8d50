"""Which directory the replicas of a node lie in: there is one."""

import asyncio
from pathlib import Path
from typing import Any

from headwater.broker.server import Broker
from headwater.metadata import keys
from headwater.metadata.store import Is, Put
from headwater.model.cluster import StoreState
from headwater.model.errors import ErrorCode
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.two_nodes import new_partition, two_nodes
from tests.support.eventually import until
from tests.support.local_broker import Client, running
from tests.support.messages import nested

ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS = 34, 35


async def alter(client: Client, *wanted: tuple[str, str, list[int]]) -> dict[tuple[str, int], int]:
    dirs = [nested(path=path, topics=[nested(name=topic, partitions=indexes)]) for path, topic, indexes in wanted]
    answer = await client.ask(ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)
    return {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in answer.results
        for each in topic.partitions
    }


async def directory_of(client: Client) -> Any:
    (found,) = (await client.ask(DESCRIBE_LOG_DIRS, 5, topics=None)).results
    result: Any = found
    return result


def test_a_replica_may_lie_where_it_lies_and_nowhere_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, MemoryFiles()) as (_, client):
            await client.create("orders", 2)
            own = (await directory_of(client)).log_dir
            assert await alter(client, (own, "orders", [0, 1, 9]), (own, "unknown", [0])) == {
                ("orders", 0): ErrorCode.NONE,
                ("orders", 1): ErrorCode.NONE,
                ("orders", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            for path in ("/nowhere", "relative", "", "\0", own + "/"):
                assert await alter(client, (path, "orders", [0])) == {("orders", 0): ErrorCode.LOG_DIR_NOT_FOUND}
            last_counts = await alter(client, (own, "orders", [0]), ("/nowhere", "orders", [0]))
            assert last_counts == {("orders", 0): ErrorCode.LOG_DIR_NOT_FOUND}

    asyncio.run(main())


def test_a_node_moves_only_replicas_that_it_has_and_says_when_it_gets_nothing_new(tmp_path: Path) -> None:
    async def drain(broker: Broker) -> None:
        key = keys.store_key(broker.cluster_nodes.own.store_ids[0])
        found = await broker.metadata.get(key)
        assert found is not None
        record = keys.decode_store(found.value)
        drained = keys.encode(type(record)(record.store_id, record.node_id, StoreState.DRAINING))
        assert (await broker.metadata.txn([Is(key, found.version)], [Put(key, drained)])).ok

    async def main() -> None:
        async with two_nodes(tmp_path, default_replication_factor=1) as (one, two):
            await new_partition(one, two, "orders")
            clients = [await Client.connect(broker) for broker in (one, two)]
            answers = []
            for client in clients:
                own = (await directory_of(client)).log_dir
                answers.append(await alter(client, (own, "orders", [0])))
            assert answers == [{("orders", 0): ErrorCode.NONE}, {("orders", 0): ErrorCode.REPLICA_NOT_AVAILABLE}]
            await drain(two)
            await until(lambda: two.cluster_nodes.leaving())
            assert [(await directory_of(client)).is_cordoned for client in clients] == [False, True]
            for client in clients:
                client.close()

    asyncio.run(main())
