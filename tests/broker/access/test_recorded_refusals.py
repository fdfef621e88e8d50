"""A refusal is recorded once, however many partitions it concerns; what a client is merely not shown is not recorded.
Where bindings are observed it is the same, and what would be refused is allowed."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.model.errors import ErrorCode
from headwater.testing.fakes.files import MemoryFiles
from tests.support.local_broker import Client, batch_of, running
from tests.support.messages import nested

METADATA, DESCRIBE_PARTITIONS, DESCRIBE_CLUSTER, CREATE, DELETE, EPOCHS, MARKERS, CONFIGS = (
    3,
    75,
    60,
    19,
    20,
    23,
    27,
    32,
)
TOPIC = "t"
REFUSED_IN_TEXT = re.compile(
    rf"error_code=({ErrorCode.TOPIC_AUTHORIZATION_FAILED:d}|{ErrorCode.CLUSTER_AUTHORIZATION_FAILED:d})\b"
)

Ask = Callable[[Client], Awaitable[Any]]


async def epochs(client: Client) -> Any:
    partitions = [nested(partition=index, leader_epoch=0) for index in range(3)]
    return await client.ask(EPOCHS, 4, topics=[nested(topic=TOPIC, partitions=partitions)])


async def create(client: Client) -> Any:
    topic = nested(name="new", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return await client.ask(CREATE, 7, topics=[topic], timeout_ms=1000, validate_only=True)


async def delete(client: Client) -> Any:
    return await client.ask(DELETE, 4, topic_names=["missing"], timeout_ms=1000)


async def describe_settings(client: Client) -> Any:
    resources = [nested(resource_type=2, resource_name=TOPIC, configuration_keys=None)]
    return await client.ask(CONFIGS, 4, resources=resources)


async def end_transactions(client: Client) -> Any:
    of_topic = nested(name=TOPIC, partition_indexes=[0, 1, 2])
    marker = nested(
        producer_id=7, producer_epoch=0, transaction_result=False, coordinator_epoch=0, topics=[of_topic, of_topic]
    )
    return await client.ask(MARKERS, 2, markers=[marker])


async def produce(client: Client) -> Any:
    return await client.produce(TOPIC, batch_of([b"a value"]))


async def fetch(client: Client) -> Any:
    return await client.fetch(TOPIC, 0)


async def list_everything(client: Client) -> Any:
    operations = {f"include_{each}_authorized_operations": True for each in ("topic", "cluster")}
    await client.ask(METADATA, 9, topics=None, **operations)
    await client.ask(DESCRIBE_PARTITIONS, 0, topics=[], response_partition_limit=10, cursor=None)
    return await client.ask(DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True, endpoint_type=1)


async def use_the_topic(client: Client) -> Any:
    return await client.ask(METADATA, 9, topics=[nested(name=TOPIC)], allow_auto_topic_creation=True)


def is_refused(answer: Any) -> bool:
    return REFUSED_IN_TEXT.search(repr(answer)) is not None


@pytest.mark.parametrize("mode", ["on", "observe"])
def test_each_refusal_is_counted_once(tmp_path: Path, mode: str) -> None:
    expected: list[tuple[Ask, dict[tuple[str, str], int]]] = [
        (list_everything, {}),
        (use_the_topic, {("describe", "topic"): 1}),
        (epochs, {("describe", "topic"): 1}),
        (create, {("create", "topic"): 1}),
        (delete, {("delete", "topic"): 1}),
        (describe_settings, {("describe-configs", "topic"): 1}),
        (end_transactions, {("cluster-action", "cluster"): 1}),
        (produce, {("write", "topic"): 1}),
        (fetch, {("read", "topic"): 1}),
    ]

    async def scenario() -> None:
        files = MemoryFiles()
        async with running(tmp_path, files, authorization="off") as (_, client):
            await client.create(TOPIC, partitions=3)
        async with running(tmp_path, files, authorization=mode, super_users=["User:admin"]) as (broker, client):
            for ask, counts in expected:
                broker.metrics.authorization_refusals.clear()
                answer = await ask(client)
                assert broker.metrics.authorization_refusals == counts, ask.__name__
                assert is_refused(answer) == (mode == "on" and bool(counts)), (ask.__name__, answer)

    asyncio.run(scenario())


def test_a_refused_create_says_what_would_allow_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles(), authorization="on", super_users=["User:admin"]) as (_, client):
            (refused,) = (await create(client)).topics
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert refused.error_message == "User:ANONYMOUS may not create topic 'new'."

    asyncio.run(scenario())
