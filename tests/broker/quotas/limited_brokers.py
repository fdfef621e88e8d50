"""A broker on the test's event loop with quotas, and time that the test moves. Waits that clients are told are exact
then; that a connection is not read lasts as long on the real clock."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headwater.broker.server import Broker
from headwater.security.quota_entities import QuotaEntity
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from tests.support.local_broker import Client, running
from tests.support.messages import nested
from tests.support.wire import CLIENT_ID

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
IN, OUT, TIME, MUTATIONS = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
T = 1_000
"""The limit of most tests, in bytes per second: ten thousand may be used at once."""
OWN = QuotaEntity.of([("client-id", CLIENT_ID)])


@asynccontextmanager
async def limited(
    directory: Path, entity: QuotaEntity = OWN, /, **limits: float
) -> AsyncIterator[tuple[Broker, Client, ManualClock]]:
    """With a topic `t`, which is made before the limits are."""
    clock = ManualClock()
    async with running(directory, MemoryFiles(), clock) as (broker, client):
        await client.create("t")
        await broker.quotas.alter(entity, list(limits.items()))
        yield broker, client, clock


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[Client]:
    """Each connection waits for itself."""
    client = await Client.connect(broker)
    try:
        yield client
    finally:
        client.close()


async def produced(client: Client, batch: bytes | bytearray, version: int = 9) -> int:
    """Returns the throttle time."""
    client.send_batch("t", batch, version=version)
    answer = await client.answer(PRODUCE, version)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return int(answer.throttle_time_ms)


async def fetched(
    client: Client, offset: int = 0, *, version: int = 11, session_id: int = 0, session_epoch: int = -1, **more: Any
) -> Any:
    asked = nested(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "topics": [nested(topic="t", partitions=[asked])]}
    return await client.ask(
        FETCH, version, session_id=session_id, session_epoch=session_epoch, **{**limits, **more}
    )  # fmt: skip


def size_of(answer: Any) -> int:
    return sum(len(partition.records or b"") for topic in answer.responses for partition in topic.partitions)


def usage(broker: Broker) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(broker.quotas_page())["usage"]
    return found
