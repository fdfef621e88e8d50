"""What quotas cost a request whose client is far below them, in the broker's thread and without a network.

One broker in this process, and one connection of it; produces and fetches are given to the dispatcher. Rounds alternate
between no quota at all, quotas of another client, quotas of this client for bytes, and for bytes and time. Their order
changes, and each is compared with the same round without a quota. The time is that of the thread, so that other
processes are not in it, as far as they leave the caches alone."""

import asyncio
import gc
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from headwater.broker.dispatch import Dispatcher
from headwater.broker.server import Broker
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.security.quota_entities import QuotaEntity
from headwater.transport.connection import Connection, Promise
from headwater.wire.requests import write_request
from headwater.wire.typed.api_versions import ApiVersionsRequest
from headwater.wire.typed.fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.wire.typed.produce import PartitionProduceData, ProduceRequest, TopicProduceData

CLIENT, OTHER, TOPIC = "bench", "other", "t"
RECORD_BYTES = 1_000
FETCH_BYTES = 16_384
REQUESTS = 600
"""Of one mode in one round: a few hundredths of a second."""
IN_FLIGHT = 5
TAIL_BYTES = 4 << 20
"""Of the newest records, which are in memory."""
LIMITS = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}
MODES: dict[str, dict[str, int]] = {
    "no quota": {},
    "of another": {OTHER: 2},
    "bytes": {CLIENT: 2},
    "bytes and time": {CLIENT: 3},
}
"""How many of the limits which client has."""
BASE = "no quota"

Run = Callable[[], Awaitable[None]]


def produce_frame() -> bytes:
    records = bytes(build_batch([Record(None, bytes(RECORD_BYTES))]))
    topic = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=5_000, topic_data=[topic])
    return bytes(write_request(request, 9, 1, CLIENT))[4:]


def fetch_frame() -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
    topic = FetchTopic(topic=TOPIC, partitions=[partition])
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=FETCH_BYTES, session_id=0, session_epoch=-1, topics=[topic]
    )
    return bytes(write_request(request, 11, 1, CLIENT))[4:]


async def dispatched(dispatcher: Dispatcher, connection: Connection, frame: bytes) -> None:
    for _ in range(REQUESTS // IN_FLIGHT):
        for answer in [dispatcher(connection, bytearray(frame)) for _ in range(IN_FLIGHT)]:
            if isinstance(answer, Promise):
                await answer.outcome
            elif isinstance(answer, asyncio.Future):
                await answer


async def limit(broker: Broker, mode: str) -> None:
    for client in (CLIENT, OTHER):
        count = MODES[mode].get(client, 0)
        limits = [(key, value if number < count else None) for number, (key, value) in enumerate(LIMITS.items())]
        await broker.quotas.alter(QuotaEntity.of([("client-id", client)]), limits)


async def measure(broker: Broker, run: Run, rounds: int) -> dict[str, list[float]]:
    """Of every mode, microseconds per request in every round."""
    found = defaultdict(list)
    modes = list(MODES)
    for number in range(rounds + 1):
        for mode in modes[number % len(modes) :] + modes[: number % len(modes)]:
            await limit(broker, mode)
            gc.collect()
            gc.disable()
            began_s = time.thread_time()
            await run()
            spent_s = time.thread_time() - began_s
            gc.enable()
            if number:  # the first warms up
                found[mode].append(spent_s / REQUESTS * 1e6)
    return found


def show(name: str, found: dict[str, list[float]]) -> None:
    base = found[BASE]
    print(f"{name}: {statistics.median(base):.1f} us without a quota, {len(base)} rounds")
    for mode, spent in found.items():
        if mode != BASE:
            low, middle, high = statistics.quantiles([one - other for one, other in zip(spent, base, strict=True)], n=4)
            ratio = statistics.median([one / other for one, other in zip(spent, base, strict=True)])
            print(f"    {mode:<15} {middle:+5.2f} us ({low:+.2f} to {high:+.2f} in half of the rounds), {ratio:.3f}")


async def compare(rounds: int, directory: Path) -> None:
    config = BrokerConfig.load(
        None, data_dir=directory, listen="127.0.0.1:0", metrics="off", durability="os", tail_cache_bytes=TAIL_BYTES
    )
    broker = await Broker.start(config)
    try:
        await broker.catalog.changes.create(TOPIC, 1, {})
        reader, writer = await asyncio.open_connection(*broker.address)
        writer.write(write_request(ApiVersionsRequest(), 0, 1, CLIENT))
        await reader.readexactly(4)
        (connection,) = broker.server.connections()

        async def run(frame: bytes) -> None:
            await dispatched(broker.dispatcher, connection, frame)

        await run(produce_frame())
        show("fetch of 16 KB from memory", await measure(broker, partial(run, fetch_frame()), rounds))
        show("produce of 1 KB", await measure(broker, partial(run, produce_frame()), rounds))
        show("fetch of 16 KB from the store", await measure(broker, partial(run, fetch_frame()), rounds))
        writer.close()
    finally:
        await broker.stop()


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as directory:
        asyncio.run(compare(rounds, Path(directory)))
