"""Small metadata transactions that travel together: few round trips, and nobody fails for a neighbour."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from headwater.broker.topics.grouped_writes import AT_ONCE, MAX_OPERATIONS, GroupedWrites
from headwater.metadata.store import Condition, Is, Operation, Put, Txn, Unavailable, Unknown


class Engine:
    """Versions of keys, and a look at how they were written."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}
        self.groups: list[int] = []
        self.failure: Exception | None = None

    async def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn:
        await asyncio.sleep(0)
        self.groups.append(len(operations))
        if self.failure is not None:
            raise self.failure
        if any(isinstance(each, Is) and self.versions.get(each.key, 0) != each.version for each in conditions):
            return Txn(False, {})
        for operation in operations:
            self.versions[operation.key] = self.versions.get(operation.key, 0) + 1
        return Txn(True, {operation.key: self.versions[operation.key] for operation in operations})


def spawn(coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    return asyncio.get_running_loop().create_task(coroutine)


async def write(writes: GroupedWrites, key: str, version: int = 0) -> Txn:
    return await writes.txn([Is(key, version)], [Put(key, b"value")])


def test_what_is_asked_for_together_is_written_in_few_transactions() -> None:
    async def scenario() -> None:
        engine = Engine()
        writes = GroupedWrites(engine, spawn)  # type: ignore[arg-type]
        done = await asyncio.gather(*(write(writes, f"k{number}") for number in range(500)))
        assert all(txn.ok for txn in done) and len(engine.versions) == 500
        assert max(engine.groups) <= MAX_OPERATIONS
        assert len(engine.groups) <= 500 / MAX_OPERATIONS + AT_ONCE + 1

    asyncio.run(scenario())


def test_one_that_loses_its_comparison_fails_alone() -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.versions["k7"] = 3
        writes = GroupedWrites(engine, spawn)  # type: ignore[arg-type]
        done = await asyncio.gather(*(write(writes, f"k{number}") for number in range(50)))
        assert [number for number, txn in enumerate(done) if not txn.ok] == [7]
        assert engine.versions["k7"] == 3 and engine.versions["k8"] == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("failure", [Unavailable, Unknown])
def test_an_engine_that_does_not_answer_is_everybodys_to_know(failure: type[Exception]) -> None:
    async def scenario() -> None:
        engine = Engine()
        engine.failure = failure("away")
        writes = GroupedWrites(engine, spawn)  # type: ignore[arg-type]
        done = await asyncio.gather(*(write(writes, f"k{number}") for number in range(5)), return_exceptions=True)
        assert [type(each) for each in done] == [failure] * 5
        engine.failure = None
        assert (await write(writes, "later")).ok

    asyncio.run(scenario())
