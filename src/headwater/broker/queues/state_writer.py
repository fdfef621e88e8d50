"""The log of one queue: what it decides goes to where its state is kept, on this node or another one, in order.

Nothing that was decided counts before it is on disk there. If the keeper of the state moves, or cannot be reached, what
became of the last writes is not known. But no other leader can have written, because the state is claimed in the epoch
of the leader that the queue belongs to: so it is claimed again, and a snapshot of what was decided up to then takes the
place of all that is in doubt. Members wait meanwhile, and keep their leases.

When the state is claimed by a later leader, or its keeper says that something was certainly not written, the memory is
wrong: requests that wait fail, and the queue must be dropped.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from headwater.broker.nodes.node_client import NOT_REACHED
from headwater.broker.nodes.node_messages import Claimed, ShareKey, StateEntry, StateWrite
from headwater.broker.queues.state_keys import MAX_CHANGES
from headwater.broker.state.record_log import Spawn
from headwater.logs.events import log_event
from headwater.model.errors import COORDINATOR_MOVES, ErrorCode, RequestError
from headwater.model.ids import LeaderEpoch
from headwater.queues.event_bytes import encode
from headwater.queues.events import ShareEvent, ShareSnapshot
from headwater.queues.share_partition import SharePartition

MIN_SNAPSHOT_BYTES = 16 * 1024
"""Changes of fewer bytes than this, or than the last snapshot, are cheaper to keep than a new snapshot is."""
FIRST_RETRY_S = 0.05
LONGEST_RETRY_S = 2.0

_IN_DOUBT = NOT_REACHED | COORDINATOR_MOVES | {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.FENCED_STATE_EPOCH}
"""The keeper has moved or cannot be asked, or knows of less than was written: worth another claim."""


class Keeper(Protocol):
    """Where the state of share partitions is kept. Everything raises RequestError, or fails with it."""

    async def claim(self, key: ShareKey, epoch: LeaderEpoch) -> Claimed: ...

    def write(self, write: StateWrite) -> "asyncio.Future[None]": ...

    async def forget(self, key: ShareKey, ticket: int) -> None: ...


class StateWriter:
    def __init__(
        self,
        key: ShareKey,
        epoch: LeaderEpoch,
        share: SharePartition,
        claimed: Claimed,
        keeper: Keeper,
        spawn: Spawn,
        on_lost: Callable[[], None],
    ) -> None:
        """`share` is in the state that was claimed, or is about to be written whole."""
        self._key = key
        self._epoch = epoch
        self._share = share
        self._keeper = keeper
        self._spawn = spawn
        self._on_lost = on_lost
        self._ticket = claimed.ticket
        self._changes = len(claimed.changes)
        self._change_bytes = sum(map(len, claimed.changes))
        self._snapshot_bytes = len(claimed.snapshot)
        self._last: asyncio.Future[None] | None = None
        """What was last sent to the keeper and is not confirmed."""
        self._stranded: list[asyncio.Future[None]] = []
        """Promises of writes that are in doubt: the next snapshot keeps them."""
        self._is_recovering = False
        self._retry_s = 0.0
        """How long to wait before the next claim: it grows until a write succeeds."""
        self._is_over = False

    def write(self, events: Sequence[ShareEvent]) -> "asyncio.Future[None]":
        """Log what was decided and applied; done when it is on disk, fails with RequestError. Without events: done when
        everything before is."""
        promise: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._is_over:
            _fail(promise, RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The queue is served by another node."))
        elif self._is_recovering:
            self._stranded.append(promise)
        elif events:
            self._send(self._entries(events), [promise])
        elif self._last is None:
            promise.set_result(None)
        else:
            self._follow(self._last, self._ticket, [promise])
        return promise

    async def forget(self) -> None:
        """The group is gone, and all that is known with it. Raises RequestError."""
        self.close()
        await self._keeper.forget(self._key, (await self._keeper.claim(self._key, self._epoch)).ticket)

    def close(self) -> None:
        """Write no more. What is under way has the outcome that it will have; what is in doubt stays so."""
        self._is_over = True
        self._strand(RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The queue is served by another node."))

    # Inside

    def _entries(self, events: Sequence[ShareEvent]) -> list[StateEntry]:
        entries = [StateEntry(isinstance(event, ShareSnapshot), encode(event)) for event in events]
        change_bytes = self._change_bytes + sum(len(entry.value) for entry in entries)
        is_much = change_bytes > max(MIN_SNAPSHOT_BYTES, self._snapshot_bytes)
        if self._changes + len(entries) > MAX_CHANGES or is_much:
            return [self._snapshot()]  # it has the events in it
        return entries

    def _snapshot(self) -> StateEntry:
        return StateEntry(True, encode(self._share.snapshot()))

    def _send(self, entries: Sequence[StateEntry], promises: list["asyncio.Future[None]"]) -> None:
        write = StateWrite(self._key, self._ticket, self._changes, entries)
        for entry in entries:
            if entry.is_snapshot:
                self._changes = self._change_bytes = 0
                self._snapshot_bytes = len(entry.value)
            else:
                self._changes += 1
                self._change_bytes += len(entry.value)
        try:
            written = self._keeper.write(write)
        except RequestError as error:
            self._failed(error, self._ticket, promises)
            return
        if written.done() and written.exception() is None:
            self._retry_s = 0.0
            _keep(promises)
            return
        self._last = written
        self._follow(written, self._ticket, promises)

    def _follow(self, written: "asyncio.Future[None]", ticket: int, promises: list["asyncio.Future[None]"]) -> None:
        def done(outcome: "asyncio.Future[None]") -> None:
            if self._last is outcome:
                self._last = None
            error = outcome.exception() if not outcome.cancelled() else None
            if isinstance(error, RequestError):
                self._failed(error, ticket, promises)
            elif error is None and not outcome.cancelled():
                self._retry_s = 0.0
                _keep(promises)

        written.add_done_callback(done)

    def _failed(self, error: RequestError, ticket: int, promises: list["asyncio.Future[None]"]) -> None:
        if self._is_over:
            for promise in promises:
                _fail(promise, error)
        elif error.code not in _IN_DOUBT:
            self._lose(error, promises)
        elif self._is_recovering:
            self._stranded += promises
        elif ticket != self._ticket:  # a snapshot was written since, with what this was about in it
            if self._last is None:
                _keep(promises)
            else:
                self._follow(self._last, self._ticket, promises)
        else:
            self._stranded += promises
            self._is_recovering = True
            self._spawn(self._recover(error))

    async def _recover(self, error: RequestError) -> None:
        """Until the state is claimed again, or there is no more sense in it."""
        log_event(
            "share_state_in_doubt",
            logging.WARNING,
            group=self._key.group_id,
            partition=self._key.partition,
            error=error,
        )
        while not self._is_over:
            await asyncio.sleep(self._retry_s)
            self._retry_s = min(max(2 * self._retry_s, FIRST_RETRY_S), LONGEST_RETRY_S)
            try:
                claimed = await self._keeper.claim(self._key, self._epoch)
            except RequestError as refusal:
                if refusal.code in _IN_DOUBT:
                    continue
                self._lose(refusal, [])
                return
            if not self._is_over:
                self._ticket = claimed.ticket
                self._is_recovering = False
                promises, self._stranded = self._stranded, []
                self._send([self._snapshot()], promises)
            return

    def _lose(self, error: RequestError, promises: list["asyncio.Future[None]"]) -> None:
        self._is_over = True
        if error.code is ErrorCode.FENCED_LEADER_EPOCH:
            error = RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
        self._on_lost()
        for promise in promises:
            _fail(promise, error)
        self._strand(error)

    def _strand(self, error: RequestError) -> None:
        stranded, self._stranded = self._stranded, []
        for promise in stranded:
            _fail(promise, error)


def _keep(promises: Sequence["asyncio.Future[None]"]) -> None:
    for promise in promises:
        if not promise.done():
            promise.set_result(None)


def _fail(promise: "asyncio.Future[None]", error: RequestError) -> None:
    if not promise.done():
        promise.set_exception(RequestError(error.code, error.message))
        promise.exception()  # perhaps no request waits
