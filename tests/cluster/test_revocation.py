"""What one node was told to forbid, no node allows."""

import asyncio
from pathlib import Path
from typing import Any

from headwater.model.errors import ErrorCode
from tests.cluster.guarded_nodes import NODES, READER, TOPIC, GuardedNodes, logged_in, three_nodes
from tests.support.eventually import FOREVER_MS, until
from tests.support.local_broker import batch_of
from tests.support.messages import nested
from tests.support.user_client import UserClient

PRODUCE, FETCH = 0, 1
AGAIN = 5


def test_a_binding_that_is_deleted_on_one_node_is_honoured_by_none(tmp_path: Path) -> None:
    """Nor by a fetch that began before, and waits for records."""

    async def trial(addresses: dict[int, tuple[str, int]]) -> None:
        async with logged_in(addresses) as nodes:
            await nodes.allow()
            waiting = {node: await waiting_fetch(nodes, node) for node in NODES}
            await nodes.revoke()
            assert await nodes.refuses(1), "the node that has acknowledged it"
            for node in NODES[1:]:
                await until(lambda node=node: nodes.refuses(node), f"node {node} refuses it")  # type: ignore[misc]
            for node in NODES:
                await write(nodes, node)
                answer = await waiting[node].answer(FETCH, 11)
                (partition,) = answer.responses[0].partitions
                assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                assert not partition.records
                waiting[node].close()

    with three_nodes(tmp_path) as addresses:
        asyncio.run(trial(addresses))


def test_a_binding_that_one_node_deletes_and_the_next_makes_again_is_there(tmp_path: Path) -> None:
    """The second node has not heard of the deletion yet, and takes the binding for one that it knows."""

    async def trial(addresses: dict[int, tuple[str, int]]) -> None:
        async with logged_in(addresses) as nodes:
            await nodes.allow()
            for _ in range(AGAIN):
                await nodes.revoke()
                await nodes.allow(by=2)

    with three_nodes(tmp_path) as addresses:
        asyncio.run(trial(addresses))


async def waiting_fetch(nodes: GuardedNodes, node: int) -> UserClient:
    """Of the partition that the node leads; there is nothing in it."""
    client = await UserClient.log_in(nodes.addresses[node], READER)
    fields = fetch_fields(node)

    async def is_led() -> bool:
        """A fetch that does not wait is answered without an error."""
        answer = await client.ask(FETCH, 11, **{**fields, "max_wait_ms": 0})
        return bool(answer.responses[0].partitions[0].error_code == 0)

    await until(is_led, f"node {node} leads its partition")
    client.send(FETCH, 11, **fields)
    await nodes.code(node)  # a request on another connection, behind it
    return client


def fetch_fields(node: int) -> dict[str, Any]:
    partition = nested(partition=node - 1, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    return {
        "max_wait_ms": FOREVER_MS, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1,
        "topics": [nested(topic=TOPIC, partitions=[partition])],
    }  # fmt: skip


async def write(nodes: GuardedNodes, node: int) -> None:
    data = nested(index=node - 1, records=bytes(batch_of([b"not for the reader"])))
    topic = nested(name=TOPIC, partition_data=[data])
    answer = await nodes.admins[node].ask(
        PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[topic]
    )
    assert answer.responses[0].partition_responses[0].error_code == 0, answer
