"""ListOffsets as clients do not ask it."""

import asyncio
from pathlib import Path

import pytest

from headwater.broker.log.offset_search import find_timestamp
from headwater.model.errors import ErrorCode
from headwater.testing.fakes.files import MemoryFiles
from tests.support.local_broker import LIST_OFFSETS, batch_of, running
from tests.support.messages import nested


def test_a_partition_that_is_named_twice_is_answered_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, MemoryFiles()) as (_, client):
            await client.create("orders", 2)
            named = [nested(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
            topics = [nested(name="orders", partitions=named), nested(name="orders", partitions=named[:1])]
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


@pytest.mark.parametrize("version", [1, 6, 7, 8, 9, 10, 11])
def test_what_negative_timestamps_mean_depends_on_the_version(tmp_path: Path, version: int) -> None:
    """The answers of Kafka 4.3, whose records are on local disks, too."""

    async def main() -> None:
        async with running(tmp_path, MemoryFiles()) as (_, client):
            await client.create("orders")
            await client.produce("orders", batch_of([b"a", b"b"]))
            expected = {-1: 2, -2: 0, -3: 0, -4: 0, -5: -1, -6: -1}
            known_since = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
            for timestamp in (*expected, -7, -(2**63)):
                asked = nested(partition_index=0, timestamp=timestamp)
                fields = {"replica_id": -1, "topics": [nested(name="orders", partitions=[asked])]}
                found = (await client.ask(LIST_OFFSETS, version, **fields)).topics[0].partitions[0]
                if version >= known_since.get(timestamp, 99):
                    assert (found.error_code, found.offset) == (ErrorCode.NONE, expected[timestamp]), timestamp
                else:
                    assert (found.error_code, found.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1), timestamp

    asyncio.run(main())
