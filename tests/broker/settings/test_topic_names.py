"""A name belongs to one topic, though nodes learn late what others have created."""

import asyncio
from pathlib import Path

import pytest

from headwater.metadata import keys
from headwater.metadata.store import Put
from headwater.model.errors import ErrorCode, RequestError
from headwater.testing.fakes.files import MemoryFiles
from tests.support.local_broker import running


def test_a_name_that_another_node_has_just_given_away_is_not_given_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("orders")
            first = broker.catalog.topic("orders").topic_id
            broker.catalog.removed(first)  # as a node that has not heard of it yet
            with pytest.raises(RequestError) as refused:
                await broker.catalog.changes.create("orders", 1, {})
            assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
            name = await broker.metadata.get(keys.name_key("orders"))
            assert name is not None and name.value.decode() == first.hex
            assert len(await broker.metadata.list(keys.TOPICS)) == 1
            assert len(await broker.metadata.list(keys.HEADS)) == 1, "nothing is left of the second"

    asyncio.run(run())


def test_a_name_whose_topic_is_gone_is_free(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("orders")
            name = await broker.metadata.get(keys.name_key("orders"))
            assert name is not None
            await broker.catalog.changes.delete(broker.catalog.topic("orders"))
            await broker.metadata.txn([], [Put(keys.name_key("orders"), name.value)])
            await client.create("orders")

    asyncio.run(run())
