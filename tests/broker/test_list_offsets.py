"""ListOffsets as clients do not ask it."""

import asyncio
from pathlib import Path

from local_broker import LIST_OFFSETS, batch_of, running

from headwater.broker.offset_search import find_timestamp
from headwater.model.errors import ErrorCode
from headwater.testing.files import MemoryFiles
from headwater.wire.messages import Message


def test_a_partition_that_is_named_twice_is_answered_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, MemoryFiles()) as (_, client):
            await client.create("orders", 2)
            named = [Message(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
            topics = [Message(name="orders", partitions=named), Message(name="orders", partitions=named[:1])]
            answer = await client.ask(LIST_OFFSETS, 7, replica_id=-1, topics=topics)
            (topic,) = answer.topics
            found = [(each.partition_index, each.error_code, each.offset) for each in topic.partitions]
            assert found == [(0, ErrorCode.INVALID_REQUEST, -1), (1, ErrorCode.NONE, 0)]

    asyncio.run(main())


def test_a_search_goes_on_behind_the_bytes_of_its_first_read(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("orders")
            for number in range(40):
                await client.produce("orders", batch_of([bytes(8_000)], timestamp=1_000 + number))
            partition = broker.catalog.topic("orders").partition(0)
            for offset in (0, 20, 39):
                found = await find_timestamp(partition, 1_000 + offset)
                assert found is not None
                assert found.offset == offset
            assert await find_timestamp(partition, 2_000) is None

    asyncio.run(main())
