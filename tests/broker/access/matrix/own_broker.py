"""Our broker on the event loop of the test, and all that it keeps."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headwater.broker.access import bootstrap_users
from headwater.broker.access.user_record import UserRecord
from headwater.broker.server import Broker
from headwater.security.scram import ScramCredential, ScramMechanism
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.access.matrix.world import ADMIN, PASSWORD, STRANGER, World
from tests.support import local_broker

LISTENER = {"name": "users", "protocol": "SASL_PLAINTEXT", "listen": "127.0.0.1:0", "mechanisms": ["PLAIN"]}


@asynccontextmanager
async def own_world(directory: Path, *, authorization: str = "on") -> AsyncIterator[tuple[Broker, World]]:
    credential = ScramCredential.of_password(ScramMechanism.SCRAM_SHA_256, PASSWORD, b"salt", 4096)
    record = UserRecord(credentials={credential.mechanism: credential})
    (directory / bootstrap_users.FILE_NAME).write_text(bootstrap_users.text_of({ADMIN: record, STRANGER: record}))
    broker = await local_broker.start(
        directory, MemoryFiles(), listen=None, listener=[LISTENER], http="off", authorization=authorization,
        super_users=[f"User:{ADMIN}"], group_initial_rebalance_delay_ms=0, group_consumer_session_timeout_ms=600_000,
        group_consumer_heartbeat_interval_ms=5_000,
    )  # fmt: skip
    try:
        world = await World.enter(broker.address)
        try:
            yield broker, world
        finally:
            world.close()
    finally:
        await broker.stop()
