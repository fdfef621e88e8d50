"""A broker with a topic that a share group reads."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headwater.broker.server import Broker
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.queues.share_members import configure
from tests.support.eventually import until
from tests.support.local_broker import Client, batch_of, running


@asynccontextmanager
async def queue_broker(
    directory: Path, files: MemoryFiles | None = None, *, partitions: int = 1, **config: Any
) -> AsyncIterator[tuple[Broker, Client]]:
    """With a topic "t" of which group "g" reads everything."""
    async with running(directory, files or MemoryFiles(), **config) as (broker, client):
        if broker.catalog.find("t") is None:
            await client.create("t", partitions)
        await configure(client, share_auto_offset_reset="earliest")
        yield broker, client


async def produced(client: Client, *values: bytes, partition: int = 0) -> None:
    assert (await client.produce("t", batch_of(values), partition=partition)).error_code == 0


async def waits(broker: Broker, count: int = 1) -> None:
    """Until so many fetches of group "g" wait at one of its queues."""
    await until(lambda: sum(queue.waiting_count for queue in broker.shares.of_group("g")) == count)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def ranges(broker: Broker) -> object:
    (queue,) = broker.shares.of_group("g")
    return queue.share.snapshot()


async def settled(broker: Broker) -> None:
    """Until no letter is on its way."""
    await until(lambda: not any(queue.share.pending_dead_letters() for queue in broker.shares))
