"""A real NATS server, as Debian packages it, with a JetStream work queue: file storage, a durable pull consumer that
acknowledges each record, and records that go when they are acknowledged.

What it promises: a record and an acknowledgement are written to files, which this version (2.9) syncs every two
minutes; it has no setting to wait for the disk. That is the promise of Kafka and of Headwater's `durability=os`."""

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import nats
from bench.drain import Consumer, Desk, number_in, payload
from bench.process import BrokerProcess
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from headwater.transport.ports import free_port

SERVER = Path("/usr/sbin/nats-server")
FETCH_RECORDS = 500
FETCH_WAIT_S = 0.1
"""Long enough for so many records to arrive: a fetch that is not full when it ends has cost a round trip for little."""
MAX_IN_FLIGHT = 10_000
"""Records that all consumers together may hold."""
CONFIG = """\
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{data}" }}
"""


class NatsServer:
    """A running NATS; `process` is the server, for CPU figures."""

    name = "nats"

    def __init__(self) -> None:
        if not SERVER.exists():
            raise RuntimeError("NATS is not installed (apt-get install nats-server)")
        self._folder = Path(tempfile.mkdtemp(prefix="nats-bench-"))
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.consume: Consumer = consume
        self._sent = 0
        config = self._folder / "server.conf"
        config.write_text(CONFIG.format(port=port, data=self._folder / "data"))
        command = [str(SERVER), "--config", str(config)]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._folder)}
        self.process = BrokerProcess(command, self.address, self._folder / "output.log", b"", environment)

    def start(self) -> None:
        try:
            self.process.start()
            self.process.wait_until_answering()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self.process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def create(self, queue: str) -> None:
        asyncio.run(_create(self.address, queue))

    def fill(self, queue: str, records: int) -> None:
        asyncio.run(_publish(self.address, queue, range(self._sent, self._sent + records)))
        self._sent += records

    def nudge(self, queue: str) -> int:
        return 0

    def left(self, queue: str) -> int:
        """A work queue keeps a record until it is acknowledged."""
        return asyncio.run(_left(self.address, queue))


def consume(address: str, queue: str, desk: Desk) -> None:
    asyncio.run(_consume(address, queue, desk))


async def _consume(address: str, queue: str, desk: Desk) -> None:
    client = await nats.connect(address)
    subscription = await client.jetstream().pull_subscribe_bind(queue, queue)
    desk.ready()
    while not desk.is_drained():
        try:
            messages = await subscription.fetch(FETCH_RECORDS, FETCH_WAIT_S)
        except TimeoutError:
            continue
        for message in messages:
            await message.ack()
        desk.took([number_in(message.data) for message in messages])
    await client.flush()  # answered after the acknowledgements before it were taken
    desk.finish()
    await client.close()


async def _create(address: str, queue: str) -> None:
    client = await nats.connect(address)
    stream = StreamConfig(queue, subjects=[queue], retention=RetentionPolicy.WORK_QUEUE, storage=StorageType.FILE)
    await client.jetstream().add_stream(stream)
    consumer = ConsumerConfig(durable_name=queue, ack_policy=AckPolicy.EXPLICIT, max_ack_pending=MAX_IN_FLIGHT)
    await client.jetstream().add_consumer(queue, consumer)
    await client.close()


async def _publish(address: str, queue: str, numbers: range) -> None:
    client = await nats.connect(address)
    stream = client.jetstream()
    answers = [await stream.publish_async(queue, payload(number)) for number in numbers]
    await asyncio.gather(*answers)
    await client.close()


async def _left(address: str, queue: str) -> int:
    client = await nats.connect(address)
    found = await client.jetstream().stream_info(queue)
    await client.close()
    return found.state.messages
