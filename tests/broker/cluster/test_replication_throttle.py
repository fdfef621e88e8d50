"""How fast throttled replicas pass: arithmetic, on a clock that jumps."""

import asyncio
import uuid

from headwater.broker.cluster.replication_throttle import SMALLEST_READ_BYTES, ReplicationThrottle, Throttle
from headwater.broker.settings.broker_config import BrokerConfig
from headwater.broker.settings.topic_config import BrokerDefaults, TopicConfig
from headwater.model.ids import PartitionId
from headwater.peers.pace import LONGEST_WAIT_S
from headwater.transport.system_clock import SystemClock

MIB = 1024 * 1024
TOPIC = uuid.UUID(int=7)


class JumpingClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds


class Copy:
    """Reads in turns, as a store does."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.clock = JumpingClock()
        self.throttle = Throttle(lambda: self.rate, lambda partition: partition == "slow", self.clock, self.clock.sleep)

    async def read(self, size_bytes: int, partition: str = "slow") -> float:
        """How long it took."""
        began, left = self.clock.now_s, size_bytes
        while left > 0:
            left -= await self.one(4 * MIB, partition)
        return self.clock.now_s - began

    async def one(self, most_bytes: int, partition: str = "slow") -> int:
        granted = await self.throttle.admit(partition, most_bytes)
        self.throttle.passed(partition, granted)
        return granted


def test_what_is_throttled_passes_at_the_rate_and_the_rest_at_once() -> None:
    async def main() -> None:
        for rate in (100_000, 10 * MIB):
            copy = Copy(rate)
            took_s = await copy.read(60 * rate)
            assert 59 <= took_s <= 60
            assert await copy.read(60 * rate, "fast") == 0

    asyncio.run(main())


def test_copies_share_the_rate() -> None:
    async def main() -> None:
        copy = Copy(MIB)
        await asyncio.gather(*(copy.read(10 * MIB) for _ in range(3)))
        assert copy.clock.now_s - 100 >= 29

    asyncio.run(main())


def test_another_rate_holds_for_those_that_wait() -> None:
    async def main() -> None:
        copy = Copy(1_000)
        await copy.one(MIB)
        copy.rate = 1000 * MIB
        assert await copy.read(MIB) < 1

    asyncio.run(main())


def test_something_passes_however_low_the_rate_and_no_debt_lasts() -> None:
    async def main() -> None:
        copy = Copy(0)
        assert await copy.one(MIB) == SMALLEST_READ_BYTES
        for _ in range(3):
            before_s = copy.clock.now_s
            await copy.one(MIB)
            assert abs(copy.clock.now_s - before_s - LONGEST_WAIT_S) < 0.001
        copy.rate = 10_000_000
        assert await copy.read(10) < 1

    asyncio.run(main())


def test_the_topic_names_what_is_throttled_on_which_side() -> None:
    config = TopicConfig.parse(
        {"leader.replication.throttled.replicas": "0:1,1:2", "follower.replication.throttled.replicas": "*"},
        BrokerDefaults(),
    )
    settings = BrokerConfig(leader_throttle_bytes_per_s=4 * MIB, follower_throttle_bytes_per_s=8 * MIB)
    known = {TOPIC: config}
    throttle = ReplicationThrottle(1, lambda: settings, lambda each: known.get(each.topic_id), SystemClock())

    async def granted(index: int, topic: uuid.UUID = TOPIC) -> tuple[int, int]:
        text = str(PartitionId(topic, index))
        return await throttle.giving.admit(text, 99 * MIB), await throttle.getting.admit(text, 99 * MIB)

    async def main() -> None:
        assert await granted(0) == (MIB, 2 * MIB)
        assert await granted(1) == (99 * MIB, 2 * MIB)
        assert await granted(0, uuid.UUID(int=8)) == (99 * MIB, 99 * MIB)

    asyncio.run(main())
    assert throttle.is_throttled(PartitionId(TOPIC, 5))
    assert not throttle.is_throttled(PartitionId(uuid.UUID(int=8), 0))
