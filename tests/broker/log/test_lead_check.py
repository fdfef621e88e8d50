"""A reader that knows of more than the log holds makes a leader doubt that it is one."""

import asyncio

from headwater.broker.log.lead_check import VALID_S, LeadCheck
from headwater.broker.log.partition_metadata import LostLeadership
from headwater.metadata.store import Unavailable
from headwater.testing.fakes.clock import ManualClock


class Doubted:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.answer: Exception | None = None
        self.asked = 0
        self.resigned: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.check = LeadCheck(
            self.clock, lambda work: self.tasks.append(asyncio.ensure_future(work)), self._confirm, self.resigned.append
        )

    async def _confirm(self) -> None:
        self.asked += 1
        if self.answer is not None:
            raise self.answer

    async def settle(self) -> None:
        await asyncio.gather(*self.tasks)


def test_an_offset_is_past_the_end_when_the_head_says_that_this_node_leads() -> None:
    async def run() -> None:
        doubted = Doubted()
        assert not doubted.check.is_past_the_end(10)
        assert not doubted.check.is_past_the_end(10), "it is asked once"
        await doubted.settle()
        assert doubted.check.is_past_the_end(10) and doubted.asked == 1
        assert not doubted.check.is_past_the_end(11), "somebody may have written there since"
        await doubted.settle()
        doubted.clock.advance(VALID_S)
        assert not doubted.check.is_past_the_end(11)
        await doubted.settle()
        assert doubted.resigned == []

    asyncio.run(run())


def test_who_finds_another_leader_resigns_and_who_finds_nothing_says_nothing() -> None:
    async def run() -> None:
        doubted = Doubted()
        doubted.answer = Unavailable("cut off")
        assert not doubted.check.is_past_the_end(10)
        await doubted.settle()
        assert not doubted.check.is_past_the_end(10) and doubted.resigned == []
        await doubted.settle()
        doubted.answer = LostLeadership("node 2 leads")
        assert not doubted.check.is_past_the_end(10)
        await doubted.settle()
        assert doubted.resigned == ["node 2 leads"]

    asyncio.run(run())
