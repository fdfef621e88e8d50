"""The log of a queue, before a keeper that moves, vanishes and refuses."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from headwater.broker.nodes.node_messages import Claimed, ShareKey, StateWrite
from headwater.broker.queues.state_keys import MAX_CHANGES
from headwater.broker.queues.state_writer import StateWriter
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import PartitionId
from headwater.queues.event_bytes import decode
from headwater.queues.events import RangeState, ShareEvent, ShareStateChanged, StateRange
from headwater.queues.settings import QueueSettings
from headwater.queues.share_partition import SharePartition
from tests.support.eventually import tasks_run, until

KEY = ShareKey("g", PartitionId(uuid.UUID(int=1), 0))
EPOCH = 3


class FakeKeeper:
    """Keeps entries as a real one does, and fails as it is told."""

    def __init__(self) -> None:
        self.ticket = 0
        self.snapshot = b""
        self.changes: list[bytes] = []
        self.refusals: list[RequestError] = []
        """Of the next calls, in turn."""
        self.loses_answers = 0
        """Of so many writes: they are kept, and nobody hears of it."""
        self.waits: list[asyncio.Future[None]] = []
        self.is_slow = False
        self.is_forgotten = False

    async def claim(self, key: ShareKey, epoch: int) -> Claimed:
        assert (key, epoch) == (KEY, EPOCH)
        await asyncio.sleep(0)
        self._refuse()
        self.ticket += 1
        return Claimed(self.ticket, self.snapshot, tuple(self.changes))

    def write(self, write: StateWrite) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refuse()
        if write.ticket != self.ticket or (not write.entries[0].is_snapshot and write.position != len(self.changes)):
            done.set_exception(RequestError(ErrorCode.FENCED_STATE_EPOCH))
            return done
        for entry in write.entries:
            if entry.is_snapshot:
                self.snapshot, self.changes = entry.value, []
            else:
                self.changes.append(entry.value)
        if self.loses_answers:
            self.loses_answers -= 1
            done.set_exception(RequestError(ErrorCode.NETWORK_EXCEPTION))
        elif self.is_slow:
            self.waits.append(done)
        else:
            done.set_result(None)
        return done

    async def forget(self, key: ShareKey, ticket: int) -> None:
        assert ticket == self.ticket
        self.is_forgotten = True

    def _refuse(self) -> None:
        if self.refusals:
            raise self.refusals.pop(0)

    def replayed(self) -> object:
        share = SharePartition(QueueSettings())
        for value in (self.snapshot, *self.changes):
            share.apply(decode(value))
        return share.snapshot()


class Queue:
    def __init__(self, keeper: FakeKeeper, claimed: Claimed) -> None:
        self.share = SharePartition(replace(QueueSettings(), max_record_locks=10_000))
        self.is_lost = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.log = StateWriter(KEY, EPOCH, self.share, claimed, keeper, self._spawn, self._lose)

    def settle(self, offset: int) -> "asyncio.Future[None]":
        event: ShareEvent = ShareStateChanged((StateRange(offset, offset, RangeState.ACKNOWLEDGED),))
        self.share.apply(event)
        return self.log.write([event])

    def _spawn(self, coroutine: object) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)  # type: ignore[arg-type]
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def _lose(self) -> None:
        self.is_lost = True


def play(scenario: Callable[[FakeKeeper, Queue], Awaitable[None]]) -> None:
    async def run() -> None:
        keeper = FakeKeeper()
        queue = Queue(keeper, await keeper.claim(KEY, EPOCH))
        await queue.log.write([queue.share.snapshot()])
        async with asyncio.timeout(60):
            await scenario(keeper, queue)
        for task in queue.tasks:
            task.cancel()

    asyncio.run(run())


def test_what_is_written_is_what_the_next_claim_finds() -> None:
    async def scenario(keeper: FakeKeeper, queue: Queue) -> None:
        for offset in range(3):
            await queue.settle(offset)
        assert len(keeper.changes) == 3
        assert keeper.replayed() == queue.share.snapshot()

    play(scenario)


def test_a_snapshot_takes_the_place_of_many_changes() -> None:
    async def scenario(keeper: FakeKeeper, queue: Queue) -> None:
        for offset in range(2 * MAX_CHANGES + 10):
            await queue.settle(offset)
            assert len(keeper.changes) <= MAX_CHANGES
        assert keeper.replayed() == queue.share.snapshot()

    play(scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.FENCED_STATE_EPOCH,
    ],
)
def test_a_keeper_that_moves_is_followed_and_nobody_is_told(code: ErrorCode) -> None:
    async def scenario(keeper: FakeKeeper, queue: Queue) -> None:
        keeper.refusals = [RequestError(code)] * 3
        first = queue.settle(0)
        second = queue.settle(1)
        await asyncio.gather(first, second)
        assert not queue.is_lost
        assert keeper.replayed() == queue.share.snapshot()
        await queue.settle(2)
        assert keeper.replayed() == queue.share.snapshot()

    play(scenario)


def test_a_write_whose_answer_was_lost_is_kept_once() -> None:
    async def scenario(keeper: FakeKeeper, queue: Queue) -> None:
        keeper.loses_answers = 2
        await asyncio.gather(*(queue.settle(offset) for offset in range(4)))
        assert keeper.replayed() == queue.share.snapshot()

    play(scenario)


def test_a_write_behind_one_that_was_lost_is_not_kept_without_it() -> None:
    async def scenario(keeper: FakeKeeper, queue: Queue) -> None:
        keeper.refusals = [RequestError(ErrorCode.NETWORK_EXCEPTION)]
        writes = [queue.settle(0), queue.settle(1)]
        assert keeper.changes == []
        await asyncio.gather(*writes)
        assert keeper.replayed() == queue.share.snapshot()

    play(scenario)


def test_who_writes_nothing_waits_for_what_was_written_before() -> None:
    async def scenario(keeper: FakeKeeper, queue: Queue) -> None:
        assert queue.log.write([]).done()
        keeper.is_slow = True
        queue.settle(0)
        nothing = queue.log.write([])
        await tasks_run()
        assert not nothing.done()
        keeper.waits[0].set_result(None)
        await nothing

    play(scenario)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_was_certainly_not_written_is_told_and_the_queue_is_lost(code: ErrorCode, told: ErrorCode) -> None:
    async def scenario(keeper: FakeKeeper, queue: Queue) -> None:
        keeper.refusals = [RequestError(code)]
        with pytest.raises(RequestError) as refused:
            await queue.settle(0)
        assert refused.value.code is told
        assert queue.is_lost
        with pytest.raises(RequestError):
            await queue.settle(1)

    play(scenario)


def test_a_leader_that_was_replaced_while_in_doubt_gives_up() -> None:
    async def scenario(keeper: FakeKeeper, queue: Queue) -> None:
        keeper.refusals = [RequestError(ErrorCode.NETWORK_EXCEPTION), RequestError(ErrorCode.FENCED_LEADER_EPOCH)]
        with pytest.raises(RequestError) as refused:
            await queue.settle(0)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert queue.is_lost and keeper.changes == []

    play(scenario)


def test_who_waits_is_told_when_the_queue_is_closed() -> None:
    async def scenario(keeper: FakeKeeper, queue: Queue) -> None:
        keeper.refusals = [RequestError(ErrorCode.NOT_COORDINATOR)] * 100
        waiting = queue.settle(0)
        await until(lambda: len(keeper.refusals) < 99)
        assert not waiting.done()
        queue.log.close()
        with pytest.raises(RequestError):
            await waiting
        assert not queue.is_lost

    play(scenario)


def test_a_forgotten_queue_is_claimed_once_more() -> None:
    async def scenario(keeper: FakeKeeper, queue: Queue) -> None:
        await queue.log.forget()
        assert keeper.is_forgotten

    play(scenario)
