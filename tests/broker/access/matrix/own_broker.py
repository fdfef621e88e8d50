"""Our broker on the event loop of the test.

Its time stands still: no session, lease or transaction ends by itself, and changes what a refused request must leave.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headwater.broker.server import Broker
from headwater.testing.fakes.clock import ManualClock
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.access.matrix.world import ADMIN, STRANGER, World
from tests.support import local_broker
from tests.support.first_users import LISTENER, write_first_users


@asynccontextmanager
async def own_world(directory: Path) -> AsyncIterator[tuple[Broker, World]]:
    write_first_users(directory, ADMIN, STRANGER)
    broker = await local_broker.start(
        directory, MemoryFiles(), ManualClock(), listen=None, listener=[LISTENER], http="off", authorization="on",
        super_users=[f"User:{ADMIN}"], group_initial_rebalance_delay_ms=0,
    )  # fmt: skip
    try:
        world = await World.enter(broker.address)
        try:
            yield broker, world
        finally:
            world.close()
    finally:
        await broker.stop()
