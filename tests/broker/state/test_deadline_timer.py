"""The alarm rings at the earliest deadline, however it hears of it, and not before."""

import asyncio
from collections.abc import Awaitable, Callable

from headwater.broker.state.deadline_timer import DeadlineTimer
from tests.support.eventually import until


class Clock:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def with_alarm(test: Callable[[DeadlineTimer, Clock, list[int | None], list[int]], Awaitable[None]]) -> None:
    """Each tick gives the next of the deadlines, then none; the ticks are the times at which there was one."""

    async def scenario() -> None:
        clock = Clock()
        alarm = DeadlineTimer(clock.now_ms)
        deadlines: list[int | None] = []
        ticks: list[int] = []

        def tick() -> int | None:
            ticks.append(clock.now_ms())
            return deadlines.pop(0) if deadlines else None

        running = asyncio.create_task(alarm.run(tick))
        try:
            await test(alarm, clock, deadlines, ticks)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()

    asyncio.run(scenario())


def test_it_rings_when_a_tick_has_said() -> None:
    async def test(_alarm: DeadlineTimer, clock: Clock, deadlines: list[int | None], ticks: list[int]) -> None:
        due_ms = clock.now_ms() + 30
        deadlines.append(due_ms)
        await until(lambda: len(ticks) == 2)
        assert ticks[1] >= due_ms

    with_alarm(test)


def test_a_sooner_deadline_sets_it_without_a_tick_and_a_later_one_changes_nothing() -> None:
    async def test(alarm: DeadlineTimer, clock: Clock, _deadlines: list[int | None], ticks: list[int]) -> None:
        await until(lambda: len(ticks) == 1)
        due_ms = clock.now_ms() + 100
        alarm.arm(due_ms)
        alarm.arm(due_ms + 3_000_000)
        await until(lambda: len(ticks) == 2)
        assert ticks[1] >= due_ms
        alarm.arm(0)  # long over
        await until(lambda: len(ticks) == 3)

    with_alarm(test)
