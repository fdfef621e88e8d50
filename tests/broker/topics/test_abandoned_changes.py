"""A client that goes while the broker changes topics for it leaves nothing half done."""

import asyncio
import uuid
from pathlib import Path

import pytest

from headwater.model.errors import ErrorCode
from headwater.testing.fakes.files import MemoryFiles
from tests.support.local_broker import Client, running
from tests.support.messages import nested

FIND_COORDINATOR, CREATE_PARTITIONS, DELETE_TOPICS = 10, 37, 20


@pytest.mark.parametrize("turns", range(0, 60, 3))
def test_an_internal_topic_that_was_begun_for_a_client_that_went_can_be_used(tmp_path: Path, turns: int) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            gone = await Client.connect(broker)
            gone.send(FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g"])
            for _ in range(turns):
                await asyncio.sleep(0)
            gone.close()
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            while code == ErrorCode.COORDINATOR_NOT_AVAILABLE:  # as clients do, while it is being made
                (found,) = (await client.ask(FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g"])).coordinators
                code = found.error_code
            assert code == ErrorCode.NONE, found.error_message

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", range(0, 60, 6))
def test_a_topic_whose_growth_was_abandoned_can_be_deleted(tmp_path: Path, turns: int) -> None:
    async def scenario() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("t")
            gone = await Client.connect(broker)
            growth = nested(name="t", count=4, assignments=None)
            gone.send(CREATE_PARTITIONS, 3, topics=[growth], timeout_ms=1000, validate_only=False)
            for _ in range(turns):
                await asyncio.sleep(0)
            gone.close()
            named = nested(name="t", topic_id=uuid.UUID(int=0))
            (deleted,) = (await client.ask(DELETE_TOPICS, 6, topics=[named], timeout_ms=1000)).responses
            assert deleted.error_code == ErrorCode.NONE, deleted.error_message

    asyncio.run(scenario())
