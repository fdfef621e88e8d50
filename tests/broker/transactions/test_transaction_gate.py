"""Requests of one producer pass the gate in the order in which they came."""

import asyncio
from typing import Any

from headwater.broker.transactions.transaction_gate import QueuePosition, TransactionGate
from tests.support.eventually import tasks_run


def new_gate() -> TransactionGate:
    admissions: Any = None  # nothing is asked
    return TransactionGate(admissions)


async def pass_through(turn: QueuePosition, name: str, passed: list[str], until: asyncio.Event | None = None) -> None:
    async with turn:
        if until is not None:
            await until.wait()
        passed.append(name)


def test_turns_pass_one_after_another_and_leave_no_trace() -> None:
    async def scenario() -> None:
        gate, passed = new_gate(), list[str]()
        turns = [gate.queue(7) for _ in range(3)]
        names = ("third", "second", "first")
        await asyncio.gather(*(pass_through(turns.pop(), name, passed) for name in names))
        assert passed == ["first", "second", "third"]
        assert not gate.has_queue(7)

    asyncio.run(scenario())


def test_one_that_is_given_up_in_the_middle_lets_nobody_overtake() -> None:
    async def scenario() -> None:
        gate, passed, may_end = new_gate(), list[str](), asyncio.Event()
        first, second, third = (gate.queue(7) for _ in range(3))
        tasks = [
            asyncio.create_task(pass_through(first, "first", passed, may_end)),
            asyncio.create_task(pass_through(third, "third", passed)),
        ]
        second.leave()
        await tasks_run()
        assert passed == [] and gate.has_queue(7)
        may_end.set()
        await asyncio.gather(*tasks)
        assert passed == ["first", "third"] and not gate.has_queue(7)

    asyncio.run(scenario())


def test_the_last_one_that_is_given_up_keeps_its_place_until_those_before_have_passed() -> None:
    async def scenario() -> None:
        gate, passed, may_end = new_gate(), list[str](), asyncio.Event()
        first, second = gate.queue(7), gate.queue(7)
        running = asyncio.create_task(pass_through(first, "first", passed, may_end))
        second.leave()
        third = asyncio.create_task(pass_through(gate.queue(7), "third", passed))
        await tasks_run()
        assert passed == []
        may_end.set()
        await asyncio.gather(running, third)
        assert passed == ["first", "third"] and not gate.has_queue(7)

    asyncio.run(scenario())
