"""Queues under kills: workers come, accept, give back, reject and vanish; the broker dies with all of its memory."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.broker.queues import dead_letters
from headwater.broker.server import Broker
from headwater.testing.fakes.files import MemoryFiles
from tests.broker.queues.queue_brokers import numbered, produced
from tests.broker.queues.share_members import ACCEPT, REJECT, RELEASE, Member, configure, on_loop
from tests.support.eventually import until
from tests.support.local_broker import Client, start

RECORDS, LIVES, STEPS = 300, 5, 60
OFFSET = dead_letters.PREFIX + "offset"


class Ledger:
    """What the workers were told."""

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        self.rejected: set[int] = set()
        self.in_doubt: set[int] = set()
        """Asked for, and not answered: either way is right."""

    def check(self, offsets: list[int]) -> None:
        again = self.accepted & set(offsets)
        assert not again, f"{sorted(again)} were accepted, and came again"
        again = self.rejected & set(offsets)
        assert not again, f"{sorted(again)} were rejected, and came again"


async def one_life(broker: Broker, chance: random.Random, ledger: Ledger) -> None:
    members = [await Member.joined(broker, "t", opens=False) for _ in range(3)]
    held: dict[Member, list[int]] = {member: [] for member in members}
    for _ in range(STEPS):
        member = chance.choice(members)
        choice = chance.random()
        if choice < 0.5 or not held[member]:
            fetched = await member.fetch(wait_ms=5, max_records=chance.randint(1, 12))
            ledger.check(fetched.offsets)
            for other in members:
                assert other is member or not set(held[other]) & set(fetched.offsets), "one lease at a time"
            held[member] += fetched.offsets
        elif choice < 0.95:
            kind = chance.choices([ACCEPT, RELEASE, REJECT], [6, 3, 1])[0]
            mine = sorted(chance.sample(held[member], chance.randint(1, len(held[member]))))
            assert await member.acknowledge(*((offset, offset, kind) for offset in mine)) == 0
            held[member] = [offset for offset in held[member] if offset not in mine]
            if kind == ACCEPT:
                ledger.accepted.update(mine)
            elif kind == REJECT:
                ledger.rejected.update(mine)
        else:
            member.vanish()
            await until(lambda member=member: broker.shares.sessions.get("g", member.member_id) is None)  # type: ignore[misc]
            members.remove(member)
            del held[member]
            members.append(await Member.joined(broker, "t", opens=False))
            held[members[-1]] = []
    last = chance.choice(members)
    if held[last]:  # the broker dies while this one is on its way
        ledger.in_doubt.update(held[last])
        asking = asyncio.create_task(last.acknowledge(*((offset, offset, ACCEPT) for offset in sorted(held[last]))))
        for _ in range(chance.randint(0, 20)):
            await asyncio.sleep(0)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking


@pytest.mark.parametrize("seed", range(4))
@on_loop
async def test_nothing_is_lost_and_nothing_settled_comes_again(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    files = MemoryFiles()
    ledger = Ledger()
    for life in range(LIVES):
        broker = await start(tmp_path, files)
        client = await Client.connect(broker)
        if life == 0:
            await client.create("t")
            await configure(client, share_auto_offset_reset="earliest", share_delivery_count_limit="100")
            await produced(client, *numbered(RECORDS))
        await one_life(broker, chance, ledger)
        files = files.killed()
        client.close()
        await broker.stop()
    broker = await start(tmp_path, files)
    client = await Client.connect(broker)
    member = await Member.joined(broker, "t", opens=False)
    rest: Counter[int] = Counter()
    while _left(broker) or not broker.shares.of_group("g"):
        fetched = await member.fetch(wait_ms=50)
        ledger.check(fetched.offsets)
        rest.update(fetched.offsets)
        await member.accept_all(fetched)
    letters = [int(dict(letter.headers)[OFFSET] or b"") for letter in await client.read_all("dlq.g")]
    client.close()
    await broker.stop()
    assert set(rest.values()) <= {1}
    settled = ledger.accepted | ledger.rejected | set(rest)
    assert set(range(RECORDS)) - settled <= ledger.in_doubt
    assert len(letters) == len(set(letters)), "a dead letter lands once"
    assert set(letters) == ledger.rejected


def _left(broker: Broker) -> int:
    return sum(queue.lag for queue in broker.shares.of_group("g"))
