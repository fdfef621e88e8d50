"""One shard of the transactional ids and the partition that remembers it.

Decisions are applied in memory at once, ahead of the log. Nothing that follows from them, neither a reply nor a marker,
leaves before every event decided up to then is committed. When the log does not take an append, everyone who waits is
sent to look for the coordinator again, and the shard is replayed from the log.

That a transaction is complete is logged a moment later, with what comes next: nothing follows from it, and the next
transaction of the same producer takes its place.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from headwater.broker.log.partition import Partition
from headwater.broker.replies import give
from headwater.broker.state.record_log import RecordLog, Spawn
from headwater.model.clock import Clock
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.moment import Moment, moment
from headwater.records.record import Record
from headwater.transactions.connections import Connections
from headwater.transactions.effects import Effects, Markers
from headwater.transactions.event_bytes import decode, encode
from headwater.transactions.events import Event
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.shard import TransactionShard
from headwater.transport.facts import log_fact

HOLD_S = 0.1
"""After a crash the markers of such a time are asked for again."""


class TransactionLog:
    def __init__(
        self,
        partition: Partition,
        settings: TransactionSettings,
        clock: Clock,
        spawn: Spawn,
        on_deadline: Callable[[int], None],
        on_markers: Callable[["TransactionLog", TransactionShard, Markers], None],
    ) -> None:
        """`on_deadline` is told of the shard's next deadline after every decision; `on_markers` of markers that are due
        now, and must report each that is written."""
        self._log = RecordLog(partition, clock, self._start_over)
        self._settings = settings
        self._clock = clock
        self._spawn = spawn
        self._on_deadline = on_deadline
        self._on_markers = on_markers
        self._connections = Connections()
        """Outlives the shard: a replay in a living process leaves late requests where they are."""
        self._shard: TransactionShard | None = None
        self._held: dict[str, Event] = {}
        """The last event of a transactional id, if it is not logged yet."""
        self._is_timed = False
        """Whether there is a time at which they will be."""

    @property
    def coordinator_epoch(self) -> int:
        """Grows with each leader of the partition; markers carry it, so that those of an older one are refused."""
        return self._log.partition.leader_epoch

    @property
    def is_loaded(self) -> bool:
        return self._shard is not None

    @property
    def shard(self) -> TransactionShard:
        """The transactional ids. Raises RequestError while they are being read."""
        if self._shard is None:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self._shard

    def is_run_by(self, shard: TransactionShard) -> bool:
        """Whether it is still that shard which decides, and not one that was replayed since."""
        return self._shard is shard

    def now(self) -> Moment:
        return moment(self._clock)

    def release(self, effects: Effects) -> None:
        """Log the events; replies and markers follow when they, and all decided before them, are committed."""
        if effects.can_wait:
            self._hold(effects.events)
        else:
            self._write(effects)
        if self._shard is not None and (next_ms := self._shard.next_deadline_ms()) is not None:
            self._on_deadline(next_ms)

    async def load(self) -> None:
        """Replay the partition, then take part: what was decided and not marked everywhere is marked again."""
        shard = TransactionShard(self._settings, self._connections)

        def begin() -> Callable[[Record], None]:
            nonlocal shard
            shard = TransactionShard(self._settings, self._connections)
            return partial(_replay, shard)

        count = await self._log.load(begin)
        effects = shard.resume(self.now())
        self._shard = shard
        if count:
            log_fact("transactions_loaded", partition=self._log.partition.id.index, records=count, ids=len(shard))
        self.release(effects)

    def _hold(self, events: Iterable[Event]) -> None:
        for event in events:
            self._held[event.transactional_id] = event
        if self._held and not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_later(HOLD_S, self._write_held)

    def _write_held(self) -> None:
        self._is_timed = False
        if self._held:
            self._write(Effects())

    def _write(self, effects: Effects) -> None:
        for event in effects.events:
            self._held.pop(event.transactional_id, None)
        events, self._held = [*self._held.values(), *effects.events], {}
        self._log.write([Record(*encode(event)) for event in events], partial(self._committed, effects))

    def _drop(self) -> TransactionShard | None:
        """Without what it held: whoever replays the log asks for those markers again."""
        shard, self._shard = self._shard, None
        self._held.clear()
        return shard

    def _committed(self, effects: Effects, error: RequestError | None) -> None:
        give(effects.replies, error)
        if error is None and self._shard is not None:
            for markers in effects.markers:
                self._on_markers(self, self._shard, markers)

    def close(self, error: RequestError) -> None:
        """Another node has the transactions from now on: everyone who waits is told to look for it."""
        shard = self._drop()
        if shard is not None:
            give(shard.kill(ErrorCode.NOT_COORDINATOR).replies, error)

    def _start_over(self, error: RequestError) -> None:
        """The log is behind what was decided, and it is the log that is right."""
        shard = self._drop()
        if shard is not None:
            give(shard.kill(ErrorCode.COORDINATOR_NOT_AVAILABLE).replies, error)
        if not self._log.partition.is_over:
            self._spawn(self.load())


def _replay(shard: TransactionShard, record: Record) -> None:
    event = decode(record.key or b"", record.value)
    if event is not None:
        shard.apply(event)
