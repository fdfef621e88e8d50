"""The partitions that a node leads come and go while somebody goes through them."""

import asyncio
from pathlib import Path

from headwater.testing.fakes.files import MemoryFiles
from tests.support.local_broker import running


def test_a_lead_that_is_lost_on_the_way_is_passed_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path, MemoryFiles()) as (broker, client):
            await client.create("orders", 3)
            topic = broker.catalog.topic("orders")
            walk = broker.catalog.partitions()
            assert next(walk).id.index == 0
            lost = topic.led.pop(1)
            assert [partition.id.index for partition in walk] == [2]
            topic.led[1] = lost

    asyncio.run(run())
